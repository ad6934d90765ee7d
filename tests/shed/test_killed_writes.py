"""An operator ends writes that wait for a shard."""

from harness import wait_until


def test_writes_that_wait_are_refused_and_may_have_been_applied(shard):
    shard.hold()
    writes = shard.occupy() + shard.crowd(1)
    running = lambda: shard.client.get("/admin/v1/requests").json()["requests"]
    assert running() == [], "no time has passed"
    shard.advance(0.1)
    wait_until(lambda: len(running()) == 3, "all three are listed")
    listed = running()
    assert {(one["operation"], one["phase"]) for one in listed} == {("put", "wait")}
    for one in listed:
        answer = shard.client.delete(f"/admin/v1/requests/{one['id']}")
        assert answer.status == 204, answer
    for write in writes:
        problem = write.answer().problem(409, "request-killed")
        assert problem["outcome"] == "unknown" and not problem["retry"]["safe"], problem
    assert running() == []
    shard.commits.let_go()
    wait_until(lambda: shard.arrived() == 0, "the permits come back")
    assert shard.ns.put("p", "after").status in (201, 204)
