"""The laboratory of sbon: simulation of whole daemons, experiments of the papers, benchmarks, chaos."""
