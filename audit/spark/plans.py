"""The steps of an audit that Spark does by itself, as SQL over data frames: joins, windows and groups.

Nothing here reads a log, and nothing comes to the driver but what is as small as the number of log directories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from audit.tables.kinds import DISAGREEMENTS, UNREADABLES, AuditKind
from audit.tables.schema import BlockRow, FindingRow, SegmentRow, columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENT_COST: Final = 2 << 20
"""What opening a segment costs beside its bytes, as bytes."""
BLOCKS_TOLD: Final = 4096
"""Blocks of a partition that are told to be different, at most."""
_REPLICA: Final = ("cluster", "broker", "log_dir", "topic", "partition")
_SEGMENT: Final = (*_REPLICA, "base_offset")
_DIGITS: Final = "{{20}}"  # Spark fills in what stands in single braces
_DEEP_ENOUGH: Final = {"quick": ("quick", "full", "records"), "full": ("full", "records"), "records": ("records",)}


def _names(row_class: type[Any], prefix: str = "") -> str:
    return ", ".join(f"{prefix}`{name}`" for name, _, _ in columns(row_class))


def _on(left: str, right: str, names: tuple[str, ...]) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in names)


# ---- incremental


def unchanged(spark: SparkSession, listed: DataFrame, previous: DataFrame) -> DataFrame:
    """Return the rows of the audit before for sealed segments that have the size and time they had then."""
    keys = _on("s", "p", (*_SEGMENT, "directory", "size_bytes", "mtime_ms"))
    return spark.sql(
        f"SELECT {_names(SegmentRow, 'p.')} FROM {{listed}} s JOIN {{previous}} p ON {keys} "  # noqa: S608
        "WHERE NOT s.is_active AND NOT p.is_active",
        listed=listed,
        previous=previous,
    )


def taken_over(
    spark: SparkSession, same: DataFrame, findings: DataFrame, *, depth: str, cycle: int, turn: int, now_ms: int
) -> DataFrame:
    """Return those of `same` that need not be read again: sound, without a finding, and not of this audit's share."""
    depths = ", ".join(f"'{name}'" for name in _DEEP_ENOUGH[depth])
    return spark.sql(
        f"""
        WITH told AS (
          SELECT DISTINCT cluster, broker, log_dir, topic, partition,
                 CAST(regexp_extract(path, '([0-9]{_DIGITS})[.]', 1) AS BIGINT) AS base_offset
          FROM {{findings}}
          WHERE severity <> 'note' AND topic IS NOT NULL AND path RLIKE '[0-9]{_DIGITS}[.]')
        SELECT {_names(SegmentRow).replace("`from_previous`", "true AS from_previous")} FROM {{same}} s
        WHERE valid_bytes = size_bytes AND depth IN ({depths})
          AND pmod(xxhash64(broker, log_dir, topic, partition, base_offset), {cycle}) <> {turn}
          AND verified_at > timestamp_millis({now_ms} - CAST({cycle} AS BIGINT) * 86400000)
          AND NOT EXISTS (SELECT 1 FROM told t WHERE {_on("s", "t", _SEGMENT)})
        """,  # noqa: S608
        same=same,
        findings=findings,
    )


def without(spark: SparkSession, listed: DataFrame, taken: DataFrame) -> DataFrame:
    """Return the listed segments that are not among `taken`."""
    return spark.sql(
        f"SELECT s.* FROM {{listed}} s LEFT ANTI JOIN {{taken}} t ON {_on('s', 't', (*_SEGMENT, 'directory'))}",  # noqa: S608
        listed=listed,
        taken=taken,
    )


def blocks_of(spark: SparkSession, blocks: DataFrame, taken: DataFrame) -> DataFrame:
    """Return the blocks of the segments `taken`."""
    return spark.sql(
        f"SELECT {_names(BlockRow, 'b.')} FROM {{blocks}} b LEFT SEMI JOIN {{taken}} t "  # noqa: S608
        f"ON {_on('b', 't', _SEGMENT)}",
        blocks=blocks,
        taken=taken,
    )


def changed(spark: SparkSession, same: DataFrame, verified: DataFrame) -> DataFrame:
    """Return a finding for each segment whose bytes are others although its size and time are not."""
    kind = AuditKind.CHANGED_IN_PLACE
    return spark.sql(
        f"""
        SELECT v.cluster, v.broker, v.log_dir, v.topic, v.partition,
               concat(rtrim('/', v.log_dir), '/', v.directory, '/', lpad(v.base_offset, 20, '0'), '.log') AS path,
               '{kind.value}' AS kind, CAST(NULL AS BIGINT) AS position, v.size_bytes AS size,
               v.base_offset AS first_offset, p.last_offset AS last_offset, CAST(NULL AS BIGINT) AS next_good_offset,
               concat('size and modification time are those of ', date_format(p.verified_at, 'yyyy-MM-dd HH:mm:ss'),
                      ' UTC, but the batches are not: digest ', lower(hex(p.digest)), ' then, ',
                      lower(hex(v.digest)), ' now') AS evidence,
               '{kind.severity.value}' AS severity
        FROM {{verified}} v JOIN {{same}} p ON {_on("v", "p", (*_SEGMENT, "directory"))}
        WHERE v.digest <> p.digest AND v.depth <> 'quick' AND p.depth <> 'quick'
        """,  # noqa: S608
        verified=verified,
        same=same,
    )


# ---- cutting into tasks


def weights(spark: SparkSession, parts: DataFrame) -> DataFrame:
    """Return what each log directory weighs: its cost in bytes."""
    return spark.sql(
        f"SELECT cluster, broker, log_dir, sum(coalesce(`end` - `start`, size_bytes) + {SEGMENT_COST}) AS cost, "  # noqa: S608
        "count(*) AS parts FROM {parts} GROUP BY ALL ORDER BY ALL",
        parts=parts,
    )


def into_tasks(spark: SparkSession, parts: DataFrame, dirs: DataFrame, numbers: DataFrame) -> DataFrame:
    """Return the parts with a column `task`.

    `dirs`: of each log directory the group that it is cut with, the cost of those of the group before it, and what a
    task of that group costs; `numbers`: group and place in it to the number of the task.
    """
    return spark.sql(
        f"""
        WITH running AS (
          SELECT p.*, d.`group`, d.task_bytes,
                 d.before + sum(coalesce(p.`end` - p.`start`, p.size_bytes) + {SEGMENT_COST}) OVER (
                   PARTITION BY p.cluster, p.broker, p.log_dir
                   ORDER BY p.topic, p.partition, p.base_offset, p.`start`) AS upto
          FROM {{parts}} p JOIN {{dirs}} d
            ON p.cluster = d.cluster AND p.broker = d.broker AND p.log_dir = d.log_dir)
        SELECT r.*, n.task FROM running r JOIN {{numbers}} n
          ON r.`group` = n.`group` AND (r.upto - 1) DIV r.task_bytes = n.place
        """,  # noqa: S608
        parts=parts,
        dirs=dirs,
        numbers=numbers,
    )


def placed(spark: SparkSession, tasks: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """Return the rows of the tasks of these numbers, ascending, with a column `place`: how many numbers are before."""
    first, last = numbers[0], numbers[-1]
    if last - first + 1 == len(numbers):  # a join would cost a job more before the first byte is read
        wanted = tasks.where(f"task BETWEEN {first} AND {last}")
        return wanted.selectExpr("*", f"CAST(task - {first} AS INT) AS place")
    known = spark.createDataFrame([(number, at) for at, number in enumerate(numbers)], "task bigint, place int")
    return tasks.join(known.hint("broadcast"), "task")


def with_pieces(spark: SparkSession, tasks: DataFrame, pieces: DataFrame) -> DataFrame:
    """Return each segment that was read in parts, with the list of what they gave."""
    return spark.sql(
        f"""
        WITH split AS (SELECT DISTINCT {", ".join(_SEGMENT)}, directory, size_bytes, mtime_ms, is_active,
                              high_watermark, files FROM {{tasks}} WHERE `end` IS NOT NULL),
             told AS (SELECT {", ".join(_SEGMENT)}, collect_list(struct(*)) AS pieces FROM {{pieces}}
                      GROUP BY {", ".join(_SEGMENT)})
        SELECT s.*, t.pieces FROM split s LEFT JOIN told t ON {_on("s", "t", _SEGMENT)}
        """,  # noqa: S608
        tasks=tasks,
        pieces=pieces,
    )


# ---- comparing

_REPLICA_STATES: Final = f"""
    WITH ends AS (
      SELECT {", ".join(_REPLICA)}, directory, max(coalesce(last_offset + 1, base_offset)) AS log_end
      FROM {{segments}} GROUP BY {", ".join(_REPLICA)}, directory),
    ranges AS (
      SELECT *, lead(base_offset) OVER (
        PARTITION BY {", ".join(_REPLICA)}, directory ORDER BY base_offset) - 1 AS until FROM {{listed}}),
    unread AS (
      SELECT {", ".join("r." + name for name in _REPLICA)}, r.directory,
             collect_list(array(r.base_offset, coalesce(r.until, 9223372036854775807))) AS unread
      FROM ranges r LEFT ANTI JOIN {{segments}} s ON {_on("r", "s", (*_SEGMENT, "directory"))}
      GROUP BY {", ".join("r." + name for name in _REPLICA)}, r.directory),
    told AS (
      SELECT {", ".join(_REPLICA)}, bool_or(severity = 'damage') AS is_damaged,
             bool_or(kind IN ({", ".join(f"'{kind}'" for kind in sorted(UNREADABLES))}) AND severity <> 'note')
               AS is_unreadable
      FROM {{findings}} WHERE topic IS NOT NULL GROUP BY {", ".join(_REPLICA)})
    SELECT r.*, e.log_end, u.unread, coalesce(t.is_damaged, false) AS is_damaged,
           coalesce(t.is_unreadable, false) AS is_unreadable,
           r.state = '' AND (a.topic_id IS NULL OR r.topic_id IS NULL OR a.topic_id = r.topic_id) AS is_compared
    FROM {{replicas}} r
    LEFT JOIN ends e ON {_on("r", "e", (*_REPLICA, "directory"))}
    LEFT JOIN unread u ON {_on("r", "u", (*_REPLICA, "directory"))}
    LEFT JOIN told t ON {_on("r", "t", _REPLICA)}
    LEFT JOIN {{assigned}} a ON {_on("r", "a", ("cluster", "topic", "partition"))}
    """  # noqa: S608


def replica_states(
    spark: SparkSession,
    *,
    replicas: DataFrame,
    listed: DataFrame,
    segments: DataFrame,
    findings: DataFrame,
    assigned: DataFrame,
) -> DataFrame:
    """Return each replica with what reading it gave: log end, ranges that could not be read, damage."""
    return spark.sql(
        _REPLICA_STATES,
        replicas=replicas,
        listed=listed,
        segments=segments,
        findings=findings,
        assigned=assigned,
    )


_PARTITIONS: Final = f"""
    WITH mine AS (
      SELECT b.cluster, b.topic, b.partition, b.block, b.broker, b.log_dir, bit_xor(b.digest) AS digest,
             min(b.first_offset) AS first_offset, max(b.last_offset) AS last_offset, max(b.max_epoch) AS max_epoch
      FROM {{blocks}} b LEFT SEMI JOIN (SELECT * FROM {{states}} WHERE is_compared) s ON {_on("b", "s", _REPLICA)}
      GROUP BY b.cluster, b.topic, b.partition, b.block, b.broker, b.log_dir),
    counts AS (
      SELECT cluster, topic, partition, count(*) AS replicas FROM {{states}} WHERE is_compared
      GROUP BY cluster, topic, partition),
    by_block AS (
      SELECT cluster, topic, partition, block, count(*) AS there, min(digest) AS low, max(digest) AS high,
             collect_list(struct(block, broker, log_dir, digest, first_offset, last_offset, max_epoch)) AS states
      FROM mine GROUP BY cluster, topic, partition, block),
    odd AS (
      SELECT b.*, row_number() OVER (PARTITION BY b.cluster, b.topic, b.partition ORDER BY b.block) AS n
      FROM by_block b JOIN counts c ON {_on("b", "c", ("cluster", "topic", "partition"))}
      WHERE b.there < c.replicas OR b.low <> b.high),
    told AS (
      SELECT cluster, topic, partition, flatten(collect_list(CASE WHEN n <= {BLOCKS_TOLD} THEN states END)) AS blocks,
             count_if(n > {BLOCKS_TOLD}) AS omitted
      FROM odd GROUP BY cluster, topic, partition),
    places AS (
      SELECT l.cluster, l.topic, l.partition,
             collect_list(struct(l.log_dir, l.base_offset, l.directory, l.files)) AS places
      FROM {{listed}} l LEFT SEMI JOIN told t ON {_on("l", "t", ("cluster", "topic", "partition"))}
      WHERE l.directory = concat(l.topic, '-', l.partition)
      GROUP BY l.cluster, l.topic, l.partition),
    grouped AS (
      SELECT cluster, topic, partition, collect_list(struct(
               broker, node_id, log_dir, directory, state, topic_id, log_start, high_watermark, clean_until, epochs,
               segments, size_bytes, log_end, unread, is_damaged, is_unreadable)) AS replicas
      FROM {{states}} GROUP BY cluster, topic, partition),
    wanted AS (SELECT cluster, topic, partition, struct(*) AS assigned FROM {{assigned}})
    SELECT coalesce(g.cluster, w.cluster) AS cluster, coalesce(g.topic, w.topic) AS topic,
           coalesce(g.partition, w.partition) AS partition, g.replicas, w.assigned, t.blocks, t.omitted, p.places
    FROM grouped g
    FULL JOIN wanted w ON {_on("g", "w", ("cluster", "topic", "partition"))}
    LEFT JOIN told t ON {_on("g", "t", ("cluster", "topic", "partition"))}
    LEFT JOIN places p ON {_on("g", "p", ("cluster", "topic", "partition"))}
    """  # noqa: S608


def partitions(
    spark: SparkSession, *, states: DataFrame, blocks: DataFrame, listed: DataFrame, assigned: DataFrame
) -> DataFrame:
    """Return a row for each partition: its replicas, the blocks in which they differ, and where their segments lie."""
    return spark.sql(_PARTITIONS, states=states, blocks=blocks, listed=listed, assigned=assigned)


# ---- what came of it


def kinds(spark: SparkSession, findings: DataFrame) -> DataFrame:
    """Return how many findings there are of each kind and severity."""
    return spark.sql("SELECT kind, severity, count(*) AS found FROM {findings} GROUP BY ALL", findings=findings)


def unread_places(spark: SparkSession, findings: DataFrame, limit: int) -> DataFrame:
    """Return the first paths that could not be read, and why."""
    kinds_told = ", ".join(f"'{kind}'" for kind in sorted(UNREADABLES))
    return spark.sql(
        f"SELECT path, evidence FROM {{findings}} WHERE kind IN ({kinds_told}) AND severity <> 'note' "  # noqa: S608
        f"ORDER BY path, evidence LIMIT {int(limit)}",
        findings=findings,
    )


def disagreements(spark: SparkSession, findings: DataFrame, limit: int) -> DataFrame:
    """Return the first findings on replicas that disagree."""
    kinds_told = ", ".join(f"'{kind}'" for kind in sorted(DISAGREEMENTS))
    return spark.sql(
        f"SELECT {_names(FindingRow)} FROM {{findings}} WHERE kind IN ({kinds_told}) "  # noqa: S608
        f"ORDER BY cluster, topic, partition, broker, first_offset LIMIT {int(limit)}",
        findings=findings,
    )
