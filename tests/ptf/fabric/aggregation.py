"""Sums of three workers' messages, with the root in the switch and behind it."""

from weir.tests.ptf.rig import SERVER, WORKERS, FabricTest
from weir.wire.aggregation import MessageFlag, MessageType


class TheRootGivesItsChildrenTheSum(FabricTest):
    """The root answers when all have contributed, and answers each repeated request."""

    def runTest(self) -> None:
        job = 11
        self.hold(self.state(self.job(job)))
        for worker in WORKERS[:2]:
            self.send(worker, self.contribution(worker, job))
            self.expect_nothing()
        self.send("h1", self.contribution("h1", job))
        self.expect_nothing()
        self.send("h3", self.contribution("h3", job))
        self.expect(**{worker: self.result(worker, job) for worker in WORKERS})
        again = MessageFlag.RETRANSMISSION
        self.send("h2", self.contribution("h2", job, flags=again))
        self.expect(h2=self.result("h2", job, ttl=63, flags=again))


class AnInnerNodeSendsTheSumUpAndTheResultDown(FabricTest):
    def runTest(self) -> None:
        job = 12
        self.hold(self.state(self.job(job, server=SERVER)))
        for worker in WORKERS:
            self.expect_nothing()
            self.send(worker, self.contribution(worker, job))
        up = self.message(MessageType.CONTRIBUTION, job, 6, weight=6, contributors=1, flags=MessageFlag.WANTED)
        self.expect(**{SERVER: self.frame(up, "s1", SERVER, left=True, ttl=63)})
        result = self.message(MessageType.RESULT, job, 6, weight=6, flags=MessageFlag.WANTED)
        self.send(SERVER, self.frame(result, SERVER, "s1"))
        self.expect(**{worker: self.result(worker, job) for worker in WORKERS})


class OnlyMembersAreSummed(FabricTest):
    """A child bit belongs to one address at one port; a round that is over stays over."""

    def runTest(self) -> None:
        job = 13
        self.hold(self.state(self.job(job)))
        wrong = {
            "not_member": self.contribution("h2", job, contributors=1),
            "unknown_job": self.contribution("h2", job + 1),
            "not_parent": self.frame(self.message(MessageType.RESULT, job, 6), "h2", "s1"),
            "malformed": self.frame(self.message(MessageType.CONTRIBUTION, job, 1, contributors=2)[:-4], "h2", "s1"),
            "bad_checksum": self.frame(self.message(MessageType.CONTRIBUTION, job, 1, bad_checksum=True), "h2", "s1"),
            "bad_slot": self.contribution("h2", job, slot=4),
        }
        before = self.drops()
        for frame in wrong.values():
            self.send("h2", frame)
        self.expect_nothing()
        counted = {reason: count - before[reason] for reason, count in self.drops().items()}
        assert {reason: count for reason, count in counted.items() if count} == dict.fromkeys(wrong, 1), counted
