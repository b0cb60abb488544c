-- Functions of texts, on names and places.
SELECT id, upper(name) AS loud, lower(city) AS low, length(email) AS long, initcap(lower(name)) AS proper, reverse(state) AS backwards,
       substring(name, 2, 4) AS middle, left(city, 3) AS first_three, right(city, 2) AS last_two, instr(email, '@') AS at,
       concat(city, ', ', state) AS place, concat_ws('/', state, city, name) AS path, city || '!' AS shout,
       replace(name, ' ', '_') AS joined, lpad(state, 5, '*') AS padded, rpad(city, 4, '-') AS cut, split_part(email, '@', 2) AS domain,
       translate(credit_card, '0123456789', 'abcdefghij') AS masked, startswith(name, 'P') AS is_p, endswith(email, '.example') AS ends,
       contains(city, 'an') AS has_an, repeat(state, 2) AS twice, ltrim(substring(name, 5)) AS rest, locate('o', city) AS o_at,
       regexp_replace(credit_card, '[0-9]{4} ', '#') AS last_four, regexp_extract(email, '^([a-z]+)@', 1) AS user_name, ascii(name) AS code, chr(65) AS a,
       substring_index(email, '.', 1) AS before_dot, levenshtein(state, 'CA') AS changes, char_length(name) AS letters, space(2) AS gap
FROM person
-- duckdb
SELECT id, upper(name), lower(city), length(email), name, reverse(state),
       substring(name, 2, 4), left(city, 3), right(city, 2), instr(email, '@'),
       city || ', ' || state, concat_ws('/', state, city, name), city || '!',
       replace(name, ' ', '_'), lpad(state, 5, '*'), rpad(city, 4, '-'), split_part(email, '@', 2),
       translate(credit_card, '0123456789', 'abcdefghij'), starts_with(name, 'P'), ends_with(email, '.example'),
       contains(city, 'an'), repeat(state, 2), ltrim(substring(name, 5)), instr(city, 'o'),
       regexp_replace(credit_card, '[0-9]{4} ', '#', 'g'), regexp_extract(email, '^([a-z]+)@', 1), ascii(name), chr(65),
       split_part(email, '.', 1), levenshtein(state, 'CA'), length(name), '  '
FROM person
