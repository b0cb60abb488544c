"""The whole path of a query, from files to a file, against one job of bare Spark over the same files (``sbon bench path``)."""
