"""A shard that cannot keep up sheds what matters least, says so, and recovers by itself."""

import time

from crowd import Crowd

SHED_STATUS = 503


def test_the_lowest_tier_goes_first_and_each_is_told_why(tight):
    with Crowd(tight, ["critical"] * 2 + ["sheddable"] * 40, 3) as crowd:
        pass
    shed = crowd.of("sheddable", SHED_STATUS)
    assert shed, "forty writers on two slots are too many"
    assert len(crowd.of("sheddable", 204) + crowd.of("sheddable", 201)) > 0, "a floor is kept"
    for answer in shed:
        problem = answer.problem(503, "overloaded")
        assert problem["tier"] == "sheddable" and problem["scope"] == "shard"
        assert problem["signal"] in ("queue-delay", "queue-length", "queue-displaced")
        assert problem["retry"]["safe"] and problem["retry"]["after_ms"] >= 20
        assert problem["outcome"] == "not-applied"
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["umbo-retry-after-ms"] == str(problem["retry"]["after_ms"])
        assert answer.headers["umbo-ru"] == "0"
    assert not crowd.of("critical", SHED_STATUS), "what matters more is not shed before what matters less"
    assert len(crowd.of("critical", 201)) == 2 and len(crowd.of("critical", 204)) > 50


def test_after_the_crowd_everything_is_served_at_once(tight):
    with Crowd(tight, ["sheddable"] * 40, 1.5) as crowd:
        pass
    assert crowd.of("sheddable", SHED_STATUS)
    # As long as anybody was told to stay away.
    time.sleep(0.5)
    client = tight.client()
    answers = [client.put("/v1/ns/demo/kv/p/after", b"x", Umbo_Criticality="sheddable") for _ in range(50)]
    assert [answer.status for answer in answers] == [201] + [204] * 49


def test_a_crowd_on_one_shard_is_none_of_the_others_business(tight):
    ns = tight.namespace()
    busy = "p"
    with Crowd(tight, ["sheddable"] * 40, 2, partition=busy) as crowd:
        time.sleep(0.5)
        others = [ns.put(f"other-{number}", value=b"x", Umbo_Criticality="sheddable") for number in range(60)]
    assert crowd.of("sheddable", SHED_STATUS)
    # One in four of these lives on the busy shard, at most; all others are served.
    refused = [answer for answer in others if answer.status != 201]
    assert len(refused) <= 30, refused
    for answer in refused:
        answer.problem(503, "overloaded")


def test_a_crowd_that_has_time_is_served_whole(tight):
    with Crowd(tight, ["sheddable"] * 40, 2, Umbo_Timeout_Ms="10000") as crowd:
        pass
    assert not crowd.of("sheddable", SHED_STATUS), "a tenth of ten seconds is enough for forty writers"


def test_rows_of_a_batch_are_shed_shard_by_shard(tight):
    ns = tight.namespace()
    rows = [{"op": "put", "pk": f"k{number}", "v": "x"} for number in range(40)] + [{"op": "put", "pk": "p", "sk": "b", "v": "x"}]
    seen = set()
    with Crowd(tight, ["critical"] * 10 + ["sheddable"] * 40, 3):
        time.sleep(0.5)
        for _ in range(20):
            answer = ns.write(rows, headers={"Umbo-Criticality": "sheddable", "Umbo-Timeout-Ms": "300"})
            seen.add(answer.status)
            if answer.status != 207:
                continue
            *lines, last = answer.batch()
            shed = [line for line in lines if line["status"] == 503]
            assert len(shed) == last["end"]["failed"] < len(rows)
            assert all(line["error"]["type"].endswith("/overloaded") for line in shed), shed
            assert all(line["error"]["outcome"] == "not-applied" for line in shed)
    assert 207 in seen, seen


def test_nobody_is_charged_for_what_was_shed(tight):
    with Crowd(tight, ["sheddable"] * 40, 2) as crowd:
        pass
    shed = crowd.of("sheddable", SHED_STATUS)
    assert shed and {answer.headers["umbo-ru"] for answer in shed} == {"0"}
    # A write whose time passed in the store is charged too, as its answer says.
    others = [answer for answer, _ in crowd.answers["sheddable"] if answer.status != SHED_STATUS]
    served = [answer for answer in others if answer.status in (201, 204)]
    units = sum(int(float(answer.headers["umbo-ru"]) * 1e6 + 0.5) for answer in others)
    spent = tight.metric('umbo_request_units_total{operation="put"}')
    assert abs(spent - units / 1e6) < 1e-3 * len(served)


def test_a_server_that_sheds_nothing_lets_everybody_wait(new_server):
    server = new_server({"overload": {"enabled": False}}).start()
    server.namespace()
    with Crowd(server, ["sheddable"] * 30, 1.5) as crowd:
        pass
    assert not crowd.of("sheddable", SHED_STATUS)


def test_a_deadline_passes_in_the_queue_without_a_write(tight):
    client = tight.client()
    path = "/v1/ns/demo/kv/p/late-{}"
    late, served = [], []
    # All permits are taken by what matters more: two milliseconds are over before it is a lesser one's turn.
    with Crowd(tight, ["critical"] * 40, 3) as crowd:
        time.sleep(0.3)
        for number in range(100):
            answer = client.put(path.format(number), b"x", Umbo_Criticality="sheddable", Umbo_Timeout_Ms="2")
            if answer.status == 504 and answer.json()["type"].endswith("/deadline-before-store"):
                problem = answer.problem(504, "deadline-before-store")
                assert problem["outcome"] == "not-applied" and problem["retry"]["safe"]
                assert answer.headers["umbo-ru"] == "0"
                late.append(number)
            elif answer.status == 201:
                served.append(number)
            else:
                # Shed, or the store had begun when the time was over.
                assert answer.status in (503, 504), answer
    assert crowd.of("critical", 204), "the others were served meanwhile"
    assert len(late) >= 5, (len(late), len(served))
    # Long after whatever was begun has ended.
    time.sleep(0.2)
    written = [number for number in late if client.get(path.format(number)).status != 404]
    assert not written, f"{len(written)} of {len(late)} were written"
    assert all(client.get(path.format(number)).status == 200 for number in served)
