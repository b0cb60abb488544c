-- Functions of times and dates, over midnight to a leap day.
SELECT ts, host, year(ts) AS y, month(ts) AS m, day(ts) AS d, hour(ts) AS h, minute(ts) AS mi, second(ts) AS s, quarter(ts) AS q,
       dayofweek(ts) AS weekday_1, weekday(ts) AS weekday_0, dayofyear(ts) AS in_year, weekofyear(ts) AS week, CAST(ts AS DATE) AS that_day,
       date_trunc('day', ts) AS midnight, date_trunc('month', ts) AS first_day, installed, date_add(installed, 30) AS later, date_sub(installed, 7) AS earlier,
       datediff(CAST(ts AS DATE), installed) AS age, last_day(installed) AS month_end, add_months(installed, 1) AS next_month,
       trunc(installed, 'YEAR') AS year_begin, unix_seconds(ts) AS epoch, unix_millis(ts) AS epoch_ms, unix_date(installed) AS days,
       date_format(ts, 'yyyy/MM/dd HH:mm') AS written, make_date(2020, 2, 29) AS leap, ts + INTERVAL 90 MINUTES AS soon, ts - INTERVAL '1' DAY AS yesterday,
       extract(HOUR FROM ts) AS extracted, timestampdiff(MINUTE, TIMESTAMP '2020-02-28 00:00:00', ts) AS minutes, dayname(installed) AS name,
       to_date('2020-02-29') AS parsed, timestamp_seconds(1583000000) AS fixed
FROM metrics
-- duckdb
SELECT ts, host, year(ts), month(ts), day(ts), hour(ts), minute(ts), second(ts), quarter(ts),
       dayofweek(ts) + 1, (dayofweek(ts) + 6) % 7, dayofyear(ts), weekofyear(ts), CAST(ts AS DATE),
       date_trunc('day', ts), date_trunc('month', ts), installed, installed + 30, installed - 7,
       CAST(ts AS DATE) - installed, last_day(installed), CAST(installed + INTERVAL 1 MONTH AS DATE),
       CAST(date_trunc('year', installed) AS DATE), CAST(epoch(ts) AS BIGINT), epoch_ms(ts), installed - DATE '1970-01-01',
       strftime(ts, '%Y/%m/%d %H:%M'), DATE '2020-02-29', ts + INTERVAL 90 MINUTE, ts - INTERVAL 1 DAY,
       hour(ts), CAST(floor((epoch(ts) - epoch(TIMESTAMP '2020-02-28 00:00:00')) / 60) AS BIGINT), strftime(installed, '%a'),
       DATE '2020-02-29', make_timestamp(1583000000000000)
FROM metrics
