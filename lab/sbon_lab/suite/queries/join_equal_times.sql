-- A join of rows of the same time: pairs of hosts of different sites that are equally ill.
SELECT a.ts, a.host, b.host AS other, a.cpu + b.cpu AS load FROM metrics a JOIN metrics b
ON a.ts = b.ts AND a.healthy = b.healthy AND a.host < b.host WHERE NOT a.healthy AND split_part(a.host, '-', 1) <> split_part(b.host, '-', 1)
