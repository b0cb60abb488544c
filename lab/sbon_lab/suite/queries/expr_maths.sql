-- Functions of numbers.
SELECT host, memory_mb, abs(cpu - 0.5e0) AS off, round(cpu * 10e0) AS nearest, floor(cpu * 10e0) AS tenth, ceil(cpu * 10e0) AS above,
       sqrt(memory_mb) AS root, cbrt(cpu) AS cube_root, power(cpu, 2) AS square, mod(memory_mb, 7) AS rest, pmod(-memory_mb, 7) AS positive_rest,
       greatest(memory_mb, 8192) AS most, least(memory_mb, 8192, 4096) AS fewest, sign(cpu - 0.3e0) AS side,
       ln(memory_mb) AS logarithm, log10(memory_mb) AS decimal_logarithm, log2(memory_mb) AS binary_logarithm, exp(cpu) AS e_to, degrees(cpu) AS turned,
       sin(cpu) AS sine, atan2(cpu, 2e0) AS angle, memory_mb DIV 1024 AS gb, memory_mb & 255 AS low, memory_mb | 1 AS odd, shiftleft(memory_mb, 2) AS shifted,
       bit_count(memory_mb) AS ones, -memory_mb AS minus, cpu / memory_mb AS ratio, factorial(memory_mb % 10) AS product
FROM metrics
-- duckdb
SELECT host, memory_mb, abs(cpu - 0.5), round(cpu * 10), floor(cpu * 10), ceil(cpu * 10),
       sqrt(memory_mb), cbrt(cpu), pow(cpu, 2), memory_mb % 7, ((-memory_mb % 7) + 7) % 7,
       greatest(memory_mb, 8192), least(memory_mb, 8192, 4096), sign(cpu - 0.3),
       ln(memory_mb), log10(memory_mb), log2(memory_mb), exp(cpu), degrees(cpu),
       sin(cpu), atan2(cpu, 2), memory_mb // 1024, memory_mb & 255, memory_mb | 1, memory_mb << 2,
       bit_count(memory_mb), -memory_mb, cpu / memory_mb, factorial(memory_mb % 10)
FROM metrics
