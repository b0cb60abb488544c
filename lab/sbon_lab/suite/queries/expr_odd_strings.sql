-- Quotes, lines, blanks, characters of several bytes: what is not plain comes through whole.
SELECT ts, host, note, length(note) AS letters, octet_length(note) AS octets, md5(note) AS digest, sha2(note, 256) AS longer,
       base64(note) AS coded, hex(note) AS hexadecimal, upper(note) AS loud, trim(note) AS trimmed, concat('«', note, '»', '"\'`\\\n\t') AS framed,
       coalesce(nullif(trim(note), ''), 'nothing') AS said, position('漢', note) AS at
FROM metrics
-- duckdb
SELECT ts, host, note, length(note), strlen(note), md5(note), sha256(note),
       base64(encode(note)), hex(note), upper(note), trim(note), '«' || note || '»' || '"''`\' || chr(10) || chr(9),
       coalesce(nullif(trim(note), ''), 'nothing'), position('漢' IN note)
FROM metrics
