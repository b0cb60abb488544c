-- Arrays inside of an expression, and a value taken out of JSON.
SELECT auction, element_at(split(url, '/'), 4) AS of_channel, array_size(split(url, '[/?&]')) AS parts, array_contains(split(url, '/'), 'apple') AS is_apple,
       array_join(array_sort(array(channel, extra, 'm')), '+') AS sorted, array_max(array(price, bidder, auction)) AS largest,
       get_json_object(concat('{"price": ', price, ', "of": {"bidder": ', bidder, '}}'), '$.of.bidder') AS from_json,
       parse_url(url, 'QUERY', 'channel_id') AS channel_id, crc32('sbon') AS checked, bin(auction % 16) AS binary_digits, conv(hex(auction), 16, 10) AS there_and_back
FROM bid
WHERE price > 1000000
-- duckdb
SELECT auction, split_part(url, '/', 4), len(string_split_regex(url, '[/?&]')), list_contains(string_split(url, '/'), 'apple'),
       array_to_string(list_sort([channel, extra, 'm']), '+'), greatest(price, bidder, auction),
       CAST(bidder AS VARCHAR),
       regexp_extract(url, 'channel_id=([0-9]+)', 1), 1542648855, bin(auction % 16), CAST(auction AS VARCHAR)
FROM bid
WHERE price > 1000000
