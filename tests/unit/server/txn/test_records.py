"""The records of `__transaction_state` are read and written byte for byte as brokers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.txn.records import Facts, State, decode_key, decode_value, encode_key, encode_value, partition_of
from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.units import TopicPartition

KEY = "00000003742d31"

# What a broker 4.3.0 with transaction.version=1 wrote for librdkafka 2.16, transactional id "t-1", one after another.
TV1 = {
    "a first producer": "000100000000000000000000000075300000000001a1fe6026a3ffffffffffffffff0100080000000000000000",
    "begun": (
        "00010000000000000000000000007530010304706179020000000000076f7264657273040000000000000001000000020000"
        "0001a1fe6026e9000001a1fe6026e90100080000000000000000"
    ),
    "commit decided": (
        "00010000000000000000000000007530020304706179020000000000076f7264657273040000000000000001000000020000"
        "0001a1fe602756000001a1fe6026e90100080000000000000000"
    ),
    "committed": "000100000000000000000000000075300401000001a1fe60275a000001a1fe6026e90100080000000000000000",
    "begun again": (
        "000100000000000000000000000075300102076f7264657273020000000100000001a1fe602798000001a1fe602798010008"
        "0000000000000000"
    ),
    "abort decided": (
        "000100000000000000000000000075300302076f7264657273020000000100000001a1fe6027b7000001a1fe602798010008"
        "0000000000000000"
    ),
    "aborted": "000100000000000000000000000075300501000001a1fe6027c2000001a1fe6027980100080000000000000000",
    "the next producer": "0001000000000000000000020000ea600000000001a1fe60351bffffffffffffffff0100080000000000000000",
}
# A client of the first protocol, fenced off by the second one, at a broker 4.3.0 with transaction.version=2.
TV2_FENCED = (
    "000100000000000000000001000075300302076f7264657273020000000200000001a1fe607375000001a1fe60716802000800"
    "0000000000000002020002"
)

ORDERS = [TopicPartition("orders", number) for number in range(3)]
PAY = TopicPartition("pay", 0)


def test_a_first_producer_has_epoch_0_and_no_partitions() -> None:
    facts = decode_value(bytes.fromhex(TV1["a first producer"]))
    assert facts == Facts(0, 0, 30_000, updated_ms=1_795_269_076_643, previous_producer_id=0)


def test_a_transaction_has_its_partitions_and_the_time_it_began() -> None:
    begun, decided, done = (decode_value(bytes.fromhex(TV1[at])) for at in ("begun", "commit decided", "committed"))
    assert begun.state is State.ONGOING
    assert begun.partitions == {*ORDERS, PAY}
    assert begun.started_ms == begun.updated_ms == 1_795_269_076_713
    assert decided == begun._replace(state=State.PREPARE_COMMIT, updated_ms=1_795_269_076_822)
    assert done == decided._replace(state=State.COMPLETE_COMMIT, updated_ms=1_795_269_076_826, partitions=frozenset())


def test_what_the_second_protocol_adds_is_read_and_kept() -> None:
    facts = decode_value(bytes.fromhex(TV2_FENCED))
    assert (facts.state, facts.epoch, facts.client_version) == (State.PREPARE_ABORT, 1, 2)
    assert encode_value(facts).hex() == TV2_FENCED


@pytest.mark.parametrize("name", sorted({*TV1} - {"begun", "commit decided"}))
def test_the_values_a_broker_wrote_are_written_back_byte_for_byte(name: str) -> None:
    assert encode_value(decode_value(bytes.fromhex(TV1[name]))).hex() == TV1[name]


@pytest.mark.parametrize("name", ["begun", "commit decided"])
def test_with_several_topics_nothing_but_their_order_differs(name: str) -> None:
    ours = encode_value(decode_value(bytes.fromhex(TV1[name])))
    assert sorted(ours) == sorted(bytes.fromhex(TV1[name]))
    assert decode_value(ours) == decode_value(bytes.fromhex(TV1[name]))


def test_the_key_is_the_transactional_id() -> None:
    assert decode_key(bytes.fromhex(KEY)) == "t-1"
    assert encode_key("t-1").hex() == KEY


def test_version_0_is_read() -> None:
    old = bytes.fromhex(
        "0000" "0000000000000007" "0003" "00007530" "01" "00000001" "0003" "706179" "00000002" "00000000" "00000005"
        "00000001a1fe6026" "00000001a1fe6025"
    )  # fmt: skip
    partitions = frozenset((PAY, TopicPartition("pay", 5)))
    assert decode_value(old) == Facts(7, 3, 30_000, State.ONGOING, partitions, 0x01A1FE6026, 0x01A1FE6025)


def test_version_0_without_partitions_is_read() -> None:
    old = bytes.fromhex("0000000000000000000700030000753000ffffffff" + "00" * 8 + "ff" * 8)
    assert decode_value(old) == Facts(7, 3, 30_000, State.EMPTY, frozenset(), 0, -1)


def test_a_key_of_another_type_is_passed_over() -> None:
    assert decode_key(bytes.fromhex("00010003742d31")) is None


def test_a_later_version_and_an_unknown_state_are_unknown_formats() -> None:
    value = bytes.fromhex(TV1["committed"])
    with pytest.raises(UnsupportedFormat, match="version 2"):
        decode_value(b"\0\2" + value[2:])
    with pytest.raises(UnsupportedFormat, match="state 9"):
        decode_value(value[:16] + b"\x09" + value[17:])


@pytest.mark.parametrize("name", sorted(TV1))
def test_a_value_that_is_cut_anywhere_is_refused(name: str) -> None:
    value = bytes.fromhex(TV1[name])
    for size in range(len(value)):
        with pytest.raises(BatchCorrupt):
            decode_value(value[:size])


@given(st.binary(max_size=60))
def test_senseless_bytes_are_refused_in_good_order(data: bytes) -> None:
    for decode in (decode_key, decode_value):
        try:
            found = decode(data)
        except (BatchCorrupt, UnsupportedFormat):
            continue
        assert found is None or isinstance(found, str | Facts)


NUMBERS = st.integers(-1, 2**62)
PARTITIONS = st.frozensets(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1)), max_size=9)


@given(
    st.builds(
        Facts, NUMBERS, st.integers(-1, 2**15 - 1), st.integers(0, 2**31 - 1), st.sampled_from(list(State)[1:]),
        PARTITIONS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 2), st.just(-1),
    )
)  # fmt: skip
def test_what_is_written_is_read_back(facts: Facts) -> None:
    assert decode_value(encode_value(facts)) == facts


@given(st.text(max_size=40))
def test_any_id_is_read_back_from_its_key(transactional_id: str) -> None:
    assert decode_key(encode_key(transactional_id)) == transactional_id


@pytest.mark.parametrize(
    ("transactional_id", "partitions", "expected"),
    [("t-1", 2, 0), ("t-1", 50, 20), ("", 50, 0), ("payments-7", 50, 29), ("ünï", 7, 2), ("polygenelubricants", 50, 0)],
)
def test_an_id_belongs_to_the_partition_of_its_java_hash(transactional_id: str, partitions: int, expected: int) -> None:
    assert partition_of(transactional_id, partitions) == expected


def test_states_have_the_names_that_commands_show() -> None:
    assert [state.title for state in State] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip
