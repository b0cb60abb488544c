"""Spark functions that a query may call: deterministic, bounded, and limited to the row.

All other functions are refused. The reasons below are for people; only the list decides.
"""

import difflib
from collections.abc import Container

from sbon_node.planning.sql.syntax.lexical import words

MATHS = """abs acos acosh asin asinh atan atan2 atanh bin bit_count bit_get bround cbrt ceil ceiling conv cos cosh cot
csc degrees e exp expm1 factorial floor getbit greatest hex hypot isnan least ln log log10 log1p log2 mod
nanvl negative pi pmod positive pow power radians rint round sec shiftleft shiftright shiftrightunsigned sign
signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract unhex width_bucket"""

STRINGS = """ascii base64 bit_length btrim char char_length character_length chr concat concat_ws contains elt endswith
find_in_set format_number initcap instr lcase left len length levenshtein locate lower lpad ltrim luhn_check
mask octet_length overlay position quote regexp_count regexp_extract regexp_extract_all regexp_instr
regexp_like regexp_replace regexp_substr repeat replace reverse right rpad rtrim soundex space split
split_part startswith substr substring substring_index to_binary to_char to_number to_varchar translate
try_to_binary try_to_number ucase unbase64 upper url_decode url_encode parse_url try_parse_url try_url_decode
encode decode"""

DATES = """add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc
dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear from_unixtime from_utc_timestamp hour
last_day make_date make_dt_interval make_timestamp minute month monthname months_between next_day quarter
second timestampadd timestampdiff timestamp_micros timestamp_millis timestamp_seconds to_date to_timestamp
to_unix_timestamp to_utc_timestamp trunc try_to_date try_to_timestamp unix_date unix_micros unix_millis
unix_seconds unix_timestamp weekday weekofyear year"""

CONDITIONS = "coalesce if ifnull isnotnull isnull nullif nullifzero nvl nvl2 zeroifnull equal_null like ilike rlike regexp"
CASTS = "bigint binary boolean date double float int smallint string timestamp tinyint"
HASHES = "crc32 hash md5 sha sha1 sha2 xxhash64"
ARRAYS = """array array_contains array_distinct array_join array_max array_min array_position array_remove array_sort array_size
arrays_overlap cardinality element_at get size slice sort_array try_element_at"""
SKETCHES = "hll_sketch_estimate hll_union"
JSON = "get_json_object json_array_length json_object_keys typeof"

ALLOWED = words(" ".join((MATHS, STRINGS, DATES, CONDITIONS, CASTS, HASHES, ARRAYS, SKETCHES, JSON)))

MIN_ARGUMENTS = {"unix_timestamp": 1, "to_unix_timestamp": 1}
"""Fewest arguments; with fewer, these functions read the clock."""

LITERAL_BOUNDS = {"repeat": (1, 100), "space": (0, 1000), "lpad": (1, 1000), "rpad": (1, 1000), "format_number": (1, 30)}
"""Maps functions to an argument's position and greatest value. The argument must be a literal, so that a row stays small."""

LITERAL_TEXTS = {"replace": (2, 100), "regexp_replace": (2, 100), "overlay": (1, 100), "translate": (2, 1000)}
"""Like :data:`LITERAL_BOUNDS`, for strings and their lengths."""

GROWING = words("repeat replace regexp_replace hex bin base64 url_encode lpad rpad concat concat_ws")
"""Functions whose result may exceed their input; at most :data:`MAX_GROWTH` of them may be nested."""

MAX_GROWTH = 6

UNIT_FIRST = frozenset({"timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff"})
"""Functions whose first of three arguments is a unit, a bare word."""

UNITS = words("year quarter month week day dayofyear hour minute second millisecond microsecond")

NOT_REPEATABLE = words("""
    rand randn random randstr uniform uuid shuffle now current_timestamp current_date current_time curdate localtime
    localtimestamp current_timezone monotonically_increasing_id spark_partition_id sample aes_encrypt""")

OUTSIDE_THE_ROW = words("""
    reflect java_method try_reflect input_file_name input_file_block_start input_file_block_length current_user session_user
    user current_catalog current_database current_schema version raise_error assert_true read_files from_avro to_avro
    from_protobuf to_protobuf schema_of_avro xpath xpath_string xpath_int xpath_long xpath_double xpath_float xpath_boolean
    xpath_number xpath_short from_xml to_xml schema_of_xml bitmap_bit_position cloud_files python_udf""")

AGGREGATES = words("""
    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or collect_list
    collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kurtosis
    last last_value listagg max max_by mean median min min_by mode percentile percentile_approx
    percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop var_samp variance""")

ALLOWED_AGGREGATES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(words("sum try_sum avg mean try_avg count count_if min max bool_and bool_or every any some"), (1, 1)),
    **dict.fromkeys(words("stddev stddev_pop stddev_samp std var_pop var_samp variance skewness kurtosis"), (1, 1)),
    **dict.fromkeys(words("bit_and bit_or bit_xor approx_count_distinct"), (1, 1)),
    **dict.fromkeys(words("corr covar_pop covar_samp max_by min_by regr_slope regr_intercept regr_r2 regr_count"), (2, 2)),
}
"""Maps aggregates to their fewest and most arguments.

Listed aggregates have small state and do not depend on the order of the rows.
"""

SKETCH_AGGREGATES = {"hll_sketch_agg": (1, 1), "hll_union_agg": (1, 1)}
"""Parts of ``approx_count_distinct``. Users may not call them, since a sketch's bytes depend on the order of the rows."""

UNBOUNDED_AGGREGATES = words("""
    array_agg collect_list collect_set histogram_numeric listagg string_agg median mode percentile percentile_cont
    percentile_disc""")

WINDOWS = words("window window_time session_window row_number rank dense_rank percent_rank ntile lag lead cume_dist nth_value")

WINDOW_COLUMNS = ("window", "session_window")
"""Functions that split event time into windows."""

GENERATORS = words("explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple range")

LAMBDAS = words("""
    transform filter aggregate reduce exists forall zip_with map_filter transform_keys transform_values map_zip_with""")

_TUMBLING = "GROUP BY window(event time, '1 hour'), of which window.start and window.end can be selected"
_HOPPING = "GROUP BY window(event time, '1 hour', '10 minutes'), of which window.start and window.end can be selected"
WINDOWS_ELSEWHERE = {
    **dict.fromkeys(("tumble", "tumble_start", "tumble_end", "tumble_rowtime", "time_bucket", "date_bin"), _TUMBLING),
    **dict.fromkeys(("hop", "hop_start", "hop_end", "hop_rowtime", "cumulate"), _HOPPING),
    **dict.fromkeys(
        ("session", "session_start", "session_end"),
        "GROUP BY session_window(event time, '10 minutes'), of which session_window.start can be selected",
    ),
}
"""Window functions of Flink and TimescaleDB."""

_REFUSED: tuple[tuple[Container[str], str, str, str], ...] = (
    (NOT_REPEATABLE, "not-repeatable", "{} gives another result each time",
     "a batch that is run again must give the same rows; use the event time"),
    (OUTSIDE_THE_ROW, "forbidden-function", "{} reaches beyond the row", "only functions of a row's own values are allowed"),
    (ALLOWED_AGGREGATES, "unsupported-aggregate", "{} has no place here",
     "aggregates are allowed in SELECT and HAVING; to aggregate an aggregate, group a sub-query"),
    (UNBOUNDED_AGGREGATES, "unsupported-aggregate", "{} keeps every row",
     "sum, count, avg, min, max, stddev, approx_count_distinct do not"),
    (AGGREGATES, "unsupported-aggregate", "{} hangs on the rows' order", "min, max, min_by and max_by do not"),
    (WINDOW_COLUMNS, "unsupported-window", "{} belongs into GROUP BY", "GROUP BY {}(event time, '1 hour')"),
    (WINDOWS, "unsupported-window", "{} needs all rows in order", "aggregate by GROUP BY window(event time, '1 hour')"),
    (GENERATORS, "unsupported-generator", "{} makes several rows of one", "one row in gives at most one row out"),
    (LAMBDAS, "unsupported-lambda", "{} takes a lambda", "lambdas are not supported"),
    (words("array_repeat format_string printf sequence"), "unbounded-function", "{} may return values of any size",
     "use lpad, rpad or repeat with a literal length"),
)  # fmt: skip
"""Functions, and code, message and hint of their refusal; the first row with a name counts."""


def refusal_of(name: str) -> tuple[str, str, str]:
    """Return code, message and hint for a function that is not allowed."""
    for names, code, message, hint in _REFUSED:
        if name in names:
            return code, message.format(name), hint.format(name)
    if name in WINDOWS_ELSEWHERE:
        return "unsupported-window", f"Spark has no {name}", WINDOWS_ELSEWHERE[name]
    near = difflib.get_close_matches(name, sorted(ALLOWED), n=3, cutoff=0.7)
    hint = f"did you mean {' or '.join(near)}?" if near else "there are Spark's functions of numbers, strings, dates and arrays"
    return "unknown-function", f"{name} is not among the allowed functions", hint


# -- Regular expressions of a query: literals that RE2 accepts ---------------------------------------------------------

PATTERNS = {
    **dict.fromkeys(("rlike", "regexp", "regexp_like", "regexp_count", "regexp_extract", "regexp_extract_all"), 1),
    **dict.fromkeys(("regexp_instr", "regexp_replace", "regexp_substr", "split"), 1),
    **dict.fromkeys(("parse_url", "try_parse_url"), 2),
}
"""Maps functions to the position of the argument that is a regular expression, or that Spark writes into one.

Java looks for a match by trying, and remembers what it has tried only where no group is referred to or looked around: with a back
reference each further character may double the time. RE2 knows no construct that needs that.
"""

BAD_PATTERN = "unsupported-pattern"
NO_LITERAL = "a regular expression is a literal"
PATTERN_HINT = "write one that RE2 accepts: without back references, looking around and possessive repetitions"


def fault_of(pattern: str) -> str:
    """Return the refusal of a regular expression that RE2 does not accept; empty if it does."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.scalar(""), pattern)
    except (pa.ArrowInvalid, UnicodeError) as error:
        return f"a regular expression that RE2 does not accept: {str(error).removeprefix('Invalid regular expression: ')}"
    return ""
