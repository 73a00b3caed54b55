"""The rules by which generations follow each other, case by case. Pure: no clock, no store."""

from dataclasses import replace

import pytest

from trainer.node.peers import (
    DONE,
    DRAINED,
    DRAINING,
    FAILED,
    GRACE_S,
    QUARANTINED,
    STOPPED,
    Card,
    Ended,
    Generation,
    Member,
    Tally,
)
from trainer.node.rules import (
    BLAME_LIMIT,
    FRUITLESS_LIMIT,
    JOIN_SETTLE_S,
    JOINING_S,
    LOSSES_LIMIT,
    QUORUM_LIMIT_S,
    QUORUM_WAIT_S,
    End,
    Form,
    View,
    Wait,
    decide,
)


def card(node, launched=None, **more):
    """A node's card; `a` was launched before `b`, and so on."""
    return Card(node, f"10.0.0.{ord(node)}", launched or f"2026-01-01T00:00:{ord(node):02}Z", f"{node}1", 2, **more)


def member(node, incarnation=None):
    return Member(node, f"10.0.0.{ord(node)}", incarnation or f"{node}1", 2)


def generation(nodes, **more):
    values = {"number": 4, "port": 1, "why": "first", "graceful": False, "step": 100, **more}
    return Generation(members=tuple(member(node) for node in nodes), **values)


def view(
    nodes="ab", me="a", *, current="ab", alive=None, least=1, desired=2, waited=0.0, joined=0.0, step=100, **cards
):
    """What node `me` sees: cards of `nodes` (or as given), all alive unless said otherwise."""
    return View(
        me=me,
        cards={node: cards.get(node, card(node)) for node in nodes},
        alive=frozenset(nodes if alive is None else alive),
        least=least,
        desired=desired,
        current=generation(current) if isinstance(current, str) else current,
        waited_s=waited,
        joined_s=joined,
        step=step,
    )


def ended(node, how, reason="", number=4):
    return card(node, ended=Ended(number, how, reason))


def formed(decision):
    assert isinstance(decision, Form), decision
    return "".join(m.node for m in decision.members)


class TestFirst:
    """The first generation."""

    def test_all_desired_nodes_are_there(self):
        decision = decide(view("ab", current=None))
        assert (formed(decision), decision.why, decision.graceful, decision.tally.fruitless) == (
            "ab",
            "first",
            False,
            0,
        )

    def test_more_than_desired_take_part_too(self):
        assert formed(decide(view("abc", current=None, desired=2))) == "abc"

    def test_fewer_wait(self):
        assert decide(view("a", current=None)) == Wait("1 of 2 nodes are ready")

    def test_enough_to_train_start_after_the_wait_for_quorum(self):
        waiting = view("ab", current=None, desired=3, least=2)
        assert decide(replace(waiting, waited_s=QUORUM_WAIT_S - 0.1)) == Wait("2 of 3 nodes are ready")
        assert formed(decide(replace(waiting, waited_s=QUORUM_WAIT_S))) == "ab"

    def test_fewer_than_enough_wait_for_ever(self):
        assert isinstance(decide(view("a", current=None, desired=3, least=2, waited=1e9)), Wait)

    def test_dead_and_draining_nodes_do_not_count(self):
        assert isinstance(decide(view("ab", current=None, alive="a")), Wait)
        assert isinstance(decide(view("ab", current=None, b=card("b", state=DRAINING))), Wait)


class TestLeader:
    """Who decides."""

    def test_the_oldest_leads_and_ranks_go_by_age(self):
        cards = {"a": card("a", "2026-01-01T00:00:09Z"), "b": card("b", "2026-01-01T00:00:01Z")}
        assert formed(decide(view("ab", "b", current=None, **cards))) == "ba"
        assert decide(view("ab", "a", current=None, **cards)) == Wait()

    def test_ties_go_to_the_smallest_name(self):
        cards = {node: card(node, "2026-01-01T00:00:00Z") for node in "cba"}
        assert formed(decide(view("cba", "a", current=None, **cards))) == "abc"
        assert decide(view("cba", "c", current=None, **cards)) == Wait()

    @pytest.mark.parametrize("cards", [{"a": card("a", state=DRAINING)}, {}])
    def test_the_next_leads_where_the_oldest_drains_or_is_dead(self, cards):
        alive = "ab" if cards else "b"
        assert formed(decide(view("ab", "b", alive=alive, **cards))) == "b"

    def test_who_does_not_lead_does_nothing_whatever_has_happened(self):
        assert decide(view("ab", "b", a=ended("a", FAILED), b=ended("b", FAILED))) == Wait()

    def test_a_node_that_drains_does_not_lead(self):
        assert decide(view("a", "a", a=card("a", state=DRAINING))) == Wait()

    def test_a_node_that_cannot_tell_yet_who_is_alive_decides_nothing(self):
        """An agent that starts anew on the oldest node sees, at first, nobody's beat change."""
        unsure = replace(view("ab", alive="a"), unsure=frozenset("b"))
        assert decide(unsure) == Wait()
        assert formed(decide(replace(unsure, unsure=frozenset()))) == "a"


class TestNext:
    """What makes a generation follow another."""

    def test_while_all_is_well_nothing(self):
        assert decide(view()) == Wait()

    def test_a_node_that_joined_is_taken_in_once_it_has_stayed(self):
        assert decide(view("abc", joined=JOIN_SETTLE_S - 0.1)) == Wait()
        decision = decide(view("abc", joined=JOIN_SETTLE_S))
        assert (formed(decision), decision.why, decision.graceful) == ("abc", "c: joined", True)

    def test_a_newcomer_that_is_older_leads_and_takes_rank_0(self):
        assert formed(decide(view("abc", "a", current="bc", joined=9.0))) == "abc"

    def test_joining_does_not_wash_away_fruitless_generations(self):
        assert decide(view("abc", current=generation("ab", tally=Tally(fruitless=2)), joined=9.0)).tally.fruitless == 2

    def test_a_lost_node_is_left_behind_at_once(self):
        decision = decide(view("ab", alive="a"))
        assert (formed(decision), decision.why, decision.graceful) == ("a", "b: lost", False)

    def test_a_lost_node_that_left_no_card_is_lost_all_the_same(self):
        assert decide(view("a", alive="a")).why == "b: lost"

    def test_a_node_whose_agent_started_anew_has_lost_its_workers(self):
        anew = replace(card("b"), incarnation="b2")
        decision = decide(view("ab", b=anew))
        assert (decision.why, decision.graceful) == ("b: lost", False)
        assert [m.incarnation for m in decision.members] == ["a1", "b2"]

    def test_the_leader_that_started_anew_forms_the_next_itself(self):
        assert decide(view("ab", a=replace(card("a"), incarnation="a2"))).why == "a: lost"

    def test_a_lost_node_and_a_newcomer_make_one_generation(self):
        assert formed(decide(view("abc", alive="ac"))) == "ac"

    def test_failed_workers_start_again_on_the_same_nodes(self):
        decision = decide(view(a=ended("a", STOPPED), b=ended("b", FAILED, "rank 2 exited with 1")))
        assert (formed(decision), decision.why, decision.graceful, decision.tally.fruitless) == (
            "ab",
            "b: rank 2 exited with 1",
            False,
            1,
        )

    def test_a_loss_is_told_rather_than_the_failures_that_it_caused(self):
        decision = decide(view("ab", alive="a", a=ended("a", FAILED, "connection closed by peer")))
        assert decision.why == "b: lost"

    def test_a_failure_is_acted_on_once_all_have_ended(self):
        """Else a node that died with its workers is taken for alive, and the next generation waits for it in vain."""
        assert decide(view(b=ended("b", FAILED, "no"))) == Wait("waiting for the workers of a to end")
        assert decide(view("ab", alive="a", a=ended("a", STOPPED))).why == "b: lost"

    def test_connections_that_broke_without_a_culprit_are_called_that(self):
        decision = decide(view(a=ended("a", STOPPED), b=ended("b", STOPPED)))
        assert (formed(decision), decision.why) == ("ab", "a, b: their connections broke")

    def test_what_a_worker_said_of_its_peers_is_told_with_it(self):
        decision = decide(view(a=ended("a", STOPPED), b=ended("b", STOPPED, "rank 1: Connection closed by peer")))
        assert decision.why == "a, b: their connections broke (rank 1: Connection closed by peer)"

    def test_a_member_that_was_draining_when_this_node_came_is_no_loss(self):
        drains = {node: card(node, state=DRAINING) for node in "bc"}
        decision = decide(replace(view("abc", "a", current="bc", alive="a", **drains), unsure=frozenset("bc")))
        assert (formed(decision), decision.why, decision.graceful) == ("a", "b, c: drained", True)

    def test_what_ended_in_an_older_generation_is_over(self):
        assert decide(view(b=ended("b", FAILED, number=3))) == Wait()
        assert decide(view(a=ended("a", DONE, number=3), b=ended("b", DONE, number=3))) == Wait()

    def test_a_draining_node_is_left_out_with_time_to_save(self):
        decision = decide(view(b=card("b", state=DRAINING)))
        assert (formed(decision), decision.why, decision.graceful) == ("a", "b: drained", True)

    def test_workers_that_were_drained_start_again_where_their_nodes_stay(self):
        decision = decide(view(a=ended("a", DRAINED), b=ended("b", DRAINED)))
        assert (formed(decision), decision.graceful) == ("ab", True)

    def test_one_that_left_by_its_peers_vote_waits_for_the_card_of_who_was_asked(self):
        """A drain reaches workers through their peers before the card says so: that counts for nothing."""
        voted = view(a=ended("a", DRAINED))
        assert decide(voted) == Wait("waiting for the workers of b to end")
        told = replace(voted, cards={**voted.cards, "b": card("b", state=DRAINING, ended=Ended(4, DRAINED))})
        decision = decide(told)
        assert (formed(decision), decision.graceful, decision.tally.fruitless) == ("a", True, 0)

    def test_a_failure_in_a_drain_counts_for_nothing_and_blames_nobody(self):
        """As of a program that ends by an exception when it is asked to leave: three drains would end its run."""
        tally = Tally(fruitless=2, error="KeyboardInterrupt", blamed={"b": 1})
        asked = card("b", state=DRAINING, ended=Ended(4, FAILED, "rank 1 exited with 1", "KeyboardInterrupt"))
        for peer in (card("a", ended=Ended(4, STOPPED)), card("a", ended=Ended(4, FAILED, "no"))):
            decision = decide(view(current=generation("ab", tally=tally), a=peer, b=asked))
            assert (formed(decision), decision.graceful, decision.tally) == ("a", True, tally)
            assert "b: rank 1 exited with 1" in decision.why

    def test_a_failure_in_a_drain_is_acted_on_once_all_have_ended(self):
        asked = card("b", state=DRAINING, ended=Ended(4, FAILED, "no"))
        assert decide(view(b=asked)) == Wait("waiting for the workers of a to end")

    def test_workers_are_given_the_time_that_there_is(self):
        """Of who goes first, where several go; all that a large model takes, where none does."""
        assert decide(view("abc", joined=JOIN_SETTLE_S)).grace_s == JOINING_S > GRACE_S
        going = {"b": card("b", state=DRAINING, grace_s=290.0), "c": card("c", state=DRAINING, grace_s=100.0)}
        assert decide(view("abc", current="abc", **going)).grace_s == 100
        del going["c"]
        assert decide(view("abc", current="abc", **going)).grace_s == 290

    def test_leaving_unasked_time_and_again_ends_the_run(self):
        """A program that always exits with 75 would else be started once a second, for ever."""
        current, counts = generation("ab"), []
        while isinstance(decision := decide(view(current=current, a=ended("a", DRAINED), b=ended("b", DONE))), Form):
            assert len(counts) < FRUITLESS_LIMIT
            counts.append(decision.tally.fruitless)
            current = replace(current, tally=decision.tally)
        assert counts == [1, 2]
        assert decision == End(
            succeeded=False,
            reason="3 generations in a row ended without a new checkpoint; "
            "last: a: left as if asked to drain, which nobody was",
        )
        saved = view(current=current, step=101, a=ended("a", DRAINED), b=ended("b", DRAINED))
        assert decide(saved).tally.fruitless == 0

    def test_draining_is_no_failure_and_no_progress(self):
        drained = view(current=generation("ab", tally=Tally(fruitless=2)), b=card("b", state=DRAINING))
        assert decide(drained).tally.fruitless == 2
        assert decide(replace(drained, step=101)).tally.fruitless == 0

    def test_progress_before_a_node_joined_counts(self):
        """Else a run that checkpointed for days ends with the first failure after a newcomer."""
        joined = view("abc", current=generation("ab", tally=Tally(fruitless=2)), joined=JOIN_SETTLE_S, step=500)
        assert decide(joined).tally.fruitless == 0

    def test_waiting_for_enough_nodes_ends_after_its_limit(self):
        """Nodes that wait are paid for, before the first generation as later."""
        for current in (None, "ab"):
            short = view("ab", alive="a", current=current, least=2)
            assert isinstance(decide(replace(short, short_s=QUORUM_LIMIT_S - 1)), Wait)
            ended = decide(replace(short, short_s=QUORUM_LIMIT_S))
            assert ended == End(succeeded=False, reason="1 nodes were ready and 2 are needed, for 2 hours")

    @pytest.mark.parametrize("least", [2, 3])
    def test_a_generation_that_trains_is_not_ended_for_want_of_nodes(self, least):
        """More may be asked for in mid-run (`nodes.min`): those that train go on."""
        assert decide(replace(view("ab", least=least), short_s=2 * QUORUM_LIMIT_S)) == Wait()
        finishing = view("ab", least=3, a=ended("a", DONE))
        assert decide(replace(finishing, short_s=2 * QUORUM_LIMIT_S)) == Wait()
        done = replace(view("ab", least=3, a=ended("a", DONE), b=ended("b", DONE)), short_s=2 * QUORUM_LIMIT_S)
        assert decide(done).succeeded

    def test_too_few_nodes_wait_for_more(self):
        decision = decide(view("ab", alive="a", least=2))
        assert decision == Wait("1 nodes are ready, 2 are needed (b: lost)")


class TestEnd:
    """How a run ends."""

    def test_a_run_that_takes_longer_than_it_may_ends_whatever_it_does(self):
        """A program without a pulse that waits for itself would be paid for, for ever."""
        for seen in (view(), view(b=ended("b", FAILED)), view("ab", alive="a", least=2), view("abc", joined=9.0)):
            late = replace(seen, most_s=7200.0)
            assert not isinstance(decide(replace(late, ran_s=7199.0)), End)
            assert decide(replace(late, ran_s=7200.0)) == End(
                succeeded=False, reason="it has run for 2 hours, the most by job.hours"
            )
        done = view(a=ended("a", DONE), b=ended("b", DONE))
        assert decide(replace(done, most_s=7200.0, ran_s=9999.0)).succeeded, "it is done, if late"
        assert decide(replace(view(), ran_s=1e9)) == Wait(), "without a limit there is none"

    def test_all_done_is_success(self):
        assert decide(view(a=ended("a", DONE), b=ended("b", DONE))) == End(
            succeeded=True, reason="every worker ended well"
        )

    def test_success_counts_also_for_nodes_that_are_gone(self):
        """The last node done tells it; one that finished before may have been taken away since."""
        assert isinstance(decide(view("ab", alive="a", a=ended("a", DONE), b=ended("b", DONE))), End)

    def test_a_leader_that_was_no_member_tells_it_too(self):
        assert decide(view("abc", "a", current="bc", b=ended("b", DONE), c=ended("c", DONE))).succeeded

    @pytest.mark.parametrize("other", [card("b"), ended("b", DRAINED), ended("b", FAILED), ended("b", DONE, number=3)])
    def test_some_done_is_not(self, other):
        assert not isinstance(decide(view(a=ended("a", DONE), b=other)), End)

    def test_failing_without_a_new_checkpoint_ends_the_run_with_the_reason(self):
        last = generation("ab", tally=Tally(fruitless=FRUITLESS_LIMIT - 1))
        decision = decide(
            view(current=last, a=ended("a", STOPPED), b=ended("b", FAILED, "rank 2 exited with 1: OutOfMemory"))
        )
        assert decision == End(
            succeeded=False,
            reason="3 generations in a row ended without a new checkpoint; last: b: rank 2 exited with 1: OutOfMemory",
        )

    def test_a_new_checkpoint_begins_the_count_anew(self):
        last = generation("ab", tally=Tally(fruitless=FRUITLESS_LIMIT - 1))
        assert decide(view(current=last, step=101, a=ended("a", STOPPED), b=ended("b", FAILED))).tally.fruitless == 0

    def test_failures_are_counted_one_by_one(self):
        current, counts = generation("ab"), []
        while isinstance(decision := decide(view(current=current, a=ended("a", FAILED), b=ended("b", FAILED))), Form):
            counts.append(decision.tally.fruitless)
            current = replace(current, tally=decision.tally)
        assert counts == [1, 2]
        assert not decision.succeeded


def raised(node, error="ValueError: boom"):
    return card(node, ended=Ended(4, FAILED, f"rank 1 exited with 1: {error}", error))


class TestSameError:
    """What the job's own code raises, another try doesn't mend; one is given all the same."""

    def test_the_same_error_twice_ends_the_run_with_it(self):
        first = decide(view(a=raised("a"), b=raised("b")))
        assert isinstance(first, Form)
        second = decide(view(current=generation("ab", tally=first.tally), a=raised("a"), b=raised("b")))
        assert second == End(
            succeeded=False,
            reason="a second try raised the same error: a: rank 1 exited with 1: ValueError: boom; "
            "b: rank 1 exited with 1: ValueError: boom",
        )

    @pytest.mark.parametrize("step", [100, 101])
    def test_another_error_or_one_after_a_new_checkpoint_gets_another_try(self, step):
        tried = generation("ab", tally=Tally(fruitless=1, error="ValueError: boom" if step == 101 else "KeyError: 1"))
        assert isinstance(decide(view(current=tried, step=step, a=raised("a"), b=raised("b"))), Form)

    def test_one_that_follows_the_job_to_another_node_is_the_jobs(self):
        tally = Tally(fruitless=2, error="ValueError: boom", quarantined={"c": "it failed"})
        decision = decide(view("abc", current=generation("ab", tally=tally), a=raised("a"), b=ended("b", STOPPED)))
        assert decision.reason.startswith("a second try raised the same error")


class TestQuarantine:
    """A node that fails again and again while no other does."""

    def blamed(self, times, **more):
        values = {"least": 1, "a": ended("a", STOPPED), "b": ended("b", FAILED, "rank 1 was killed"), **more}
        return decide(view(current=generation("ab", tally=Tally(blamed={"b": times - 1})), **values))

    def test_it_is_left_out_with_a_reason(self):
        decision = self.blamed(BLAME_LIMIT, step=101)
        assert formed(decision) == "a"
        assert decision.why == "b: rank 1 was killed; b: quarantined"
        assert decision.tally.quarantined == {
            "b": "its workers failed 3 times in a row, no other's did; last: rank 1 was killed"
        }

    def test_where_no_checkpoint_comes_one_time_fewer_is_enough(self):
        """Else the run is given up for its failures before it was tried without the node."""
        assert formed(self.blamed(BLAME_LIMIT - 1, step=101)) == "ab"
        assert formed(self.blamed(BLAME_LIMIT - 1)) == "a"
        assert BLAME_LIMIT - 1 < FRUITLESS_LIMIT

    def test_it_stays_out_for_good_and_does_not_lead(self):
        tally = Tally(quarantined={"a": "no"})
        assert formed(decide(view("abc", "b", current=generation("b", tally=tally), joined=9.0))) == "bc"
        assert decide(view("abc", "a", current=generation("b", tally=tally), joined=9.0)) == Wait()

    def test_one_that_is_needed_leaves_as_well_and_the_others_wait_for_its_replacement(self):
        """Kept, it would end the run; its group replaces it, once it knows that it is out."""
        decision = self.blamed(BLAME_LIMIT - 1, least=2)
        assert (formed(decision), decision.graceful, set(decision.tally.quarantined)) == ("", False, {"b"})
        out = generation("", tally=decision.tally)
        waiting = view("ab", current=out, least=2)
        assert decide(waiting) == Wait("1 nodes are ready, 2 are needed (nodes were waited for)")
        assert isinstance(decide(replace(waiting, short_s=QUORUM_LIMIT_S)), End)
        again = decide(view("abc", current=out, least=2))
        assert (formed(again), again.tally.quarantined.keys()) == ("ac", {"b"})

    def test_what_its_own_code_raises_each_time_ends_the_run_without_a_wait_for_nodes(self):
        tally = Tally(fruitless=1, error="ValueError: boom", blamed={"b": 1})
        failed = {"a": ended("a", STOPPED), "b": raised("b")}
        decision = decide(view(least=2, current=generation("ab", tally=tally), **failed))
        assert decision.reason.startswith("a second try raised the same error: b")
        assert formed(decide(view(least=1, current=generation("ab", tally=tally), **failed))) == "a"

    def test_several_that_are_needed_and_fail_together_are_kept(self):
        """Half a fleet that fails is the job's doing as likely as not."""
        tally = Tally(blamed={"b": 1, "c": 1})
        failed = {"a": ended("a", STOPPED), "b": ended("b", FAILED, "killed"), "c": ended("c", FAILED, "killed")}
        assert formed(decide(view("abc", least=2, current=generation("abc", tally=tally), **failed))) == "ac"

    def test_a_leader_that_is_out_leaves_it_to_the_next_to_form_a_generation(self):
        """The workers meet at a port that was free where its leader looked: on its own node."""
        tally = Tally(blamed={"a": BLAME_LIMIT - 1})
        failed = {"a": ended("a", FAILED, "killed"), "b": ended("b", STOPPED)}
        decision = decide(view(current=generation("ab", tally=tally), **failed))
        assert (formed(decision), set(decision.tally.quarantined)) == ("", {"a"})
        out = generation("", tally=decision.tally)
        assert decide(view(me="a", current=out, **failed)) == Wait()
        assert formed(decide(view(me="b", current=out, **failed))) == "b"

    def test_nodes_that_fail_in_turn_are_not_the_cause(self):
        failed = {"a": ended("a", FAILED), "b": ended("b", STOPPED)}
        turned = decide(view(current=generation("ab", tally=Tally(blamed={"b": 9})), **failed))
        assert turned.tally.blamed == {"a": 1}
        together = {"a": ended("a", FAILED), "b": ended("b", FAILED)}
        assert formed(decide(view(current=generation("ab", tally=Tally(blamed={"b": 9})), **together))) == "ab"

    def test_a_loss_is_nobodys_fault_and_washes_nothing_away(self):
        lost = decide(view("abc", alive="ac", current=generation("abc", tally=Tally(blamed={"c": 2}))))
        assert lost.tally.blamed == {"c": 2}

    def test_a_job_that_fails_on_whatever_node_takes_the_place_ends_all_the_same(self):
        """Nodes in quarantine are replaced, so that there are always enough to go on with."""
        current = generation("ab")
        for bad in "bb":
            decision = decide(view("ab", current=current, a=ended("a", STOPPED), b=ended(bad, FAILED, "killed")))
            current = replace(current, tally=decision.tally)
        assert formed(decision) == "a"
        current = generation("ac", tally=decision.tally)
        decision = decide(view("abc", current=current, a=ended("a", STOPPED), c=ended("c", FAILED, "killed")))
        assert decision == End(
            succeeded=False, reason="3 generations in a row ended without a new checkpoint; last: c: killed"
        )


ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def broken(node, error=ECC):
    return card(node, ended=Ended(4, FAILED, f"rank 1 exited with 1: {error}", error, machine=True))


class TestMachines:
    """A node whose machine fails, which it says itself: one node's fault, whoever else is there."""

    def test_the_only_node_is_replaced_though_it_raises_the_same_error_twice(self):
        first = decide(view("a", current="a", a=broken("a")))
        assert (formed(first), first.tally.fruitless, first.tally.losses) == ("a", 0, 1)
        second = decide(view("a", current=generation("a", tally=first.tally), a=broken("a")))
        assert (formed(second), set(second.tally.quarantined)) == ("", {"a"})
        left_out = view("ab", me="b", current=generation("", tally=second.tally), a=broken("a"))
        assert formed(decide(left_out)) == "b"

    def test_where_checkpoints_come_it_is_given_one_try_more(self):
        tally = Tally(losses=1, blamed={"a": 1})
        assert formed(decide(view("a", current=generation("a", tally=tally), step=101, a=broken("a")))) == "a"

    def test_what_its_peers_say_is_noise(self):
        """Each of their errors comes of the same cause, and the same one twice would end the run."""
        tally = Tally(fruitless=1, error="ValueError: boom", blamed={"b": 1})
        decision = decide(view(least=2, current=generation("ab", tally=tally), a=raised("a"), b=broken("b")))
        assert (formed(decision), set(decision.tally.quarantined)) == ("", {"b"})
        assert "boom" not in decision.why

    def test_several_bad_nodes_one_after_another_do_not_end_a_run(self):
        """They were not the job's doing: three failures of its own would."""
        current, nodes = generation("AB"), "AB"
        for bad, fresh in ("BC", "CD", "DE"):
            for _ in range(2):
                failed = {"A": ended("A", STOPPED), bad: broken(bad)}
                decision = decide(view(nodes, "A", least=2, current=current, **failed))
                assert isinstance(decision, Form)
                current = generation(nodes, tally=decision.tally)
            assert formed(decision) == ""
            nodes = f"A{fresh}"
            current = generation(nodes, tally=decision.tally)

    def test_faults_without_a_new_checkpoint_come_to_an_end_all_the_same(self):
        tally = Tally(losses=LOSSES_LIMIT - 1)
        decision = decide(view("a", current=generation("a", tally=tally), a=broken("a")))
        assert decision.reason.startswith("20 times a node was lost")

    def test_what_befalls_all_nodes_at_once_is_none_of_theirs(self):
        """As where a file system fails that they share: to replace them all would be no help."""
        decision = decide(view(current=generation("ab", tally=Tally(blamed={"a": 9})), a=broken("a"), b=broken("b")))
        assert (formed(decision), decision.tally.fruitless, decision.tally.blamed) == ("ab", 1, {})


class TestLosses:
    """What the cloud takes away is no failure of the job."""

    def test_losses_are_counted_apart_from_failures_up_to_a_limit_of_their_own(self):
        current, counts = generation("ab"), []
        while isinstance(decision := decide(view("ab", alive="a", current=current)), Form):
            assert len(counts) < 2 * LOSSES_LIMIT
            counts.append((decision.tally.losses, decision.tally.fruitless))
            current = replace(current, tally=decision.tally)
        assert counts == [(times, 0) for times in range(1, LOSSES_LIMIT)]
        assert decision.reason.startswith("20 times a node was lost before there was a new checkpoint; last: b: lost")

    def test_a_new_checkpoint_begins_the_count_anew(self):
        lost = view("ab", alive="a", current=generation("ab", tally=Tally(losses=9)), step=101)
        assert decide(lost).tally.losses == 1

    def test_one_that_is_quiet_when_connections_break_is_lost_at_once(self):
        broken = view(a=ended("a", STOPPED))
        assert decide(broken) == Wait("waiting for the workers of b to end")
        decision = decide(replace(broken, quiet=frozenset("b")))
        assert (formed(decision), decision.why) == ("a", "b: lost")

    def test_the_next_leads_at_once_where_it_is_the_leader(self):
        broken = view(me="b", b=ended("b", STOPPED))
        assert decide(broken) == Wait()
        assert formed(decide(replace(broken, quiet=frozenset("a")))) == "b"

    @pytest.mark.parametrize("others", [{}, {"a": ended("a", FAILED)}])
    def test_one_that_is_only_quiet_is_given_its_time(self, others):
        """Its store may be slow; and what failed elsewhere explains why connections broke."""
        assert isinstance(decide(replace(view(**others), quiet=frozenset("b"))), Wait)


def test_a_node_in_quarantine_takes_no_part_whatever_the_record_says():
    assert formed(decide(view("ab", b=card("b", state=QUARANTINED), alive="ab", current=generation("a"), joined=9.0,
                              a=ended("a", DRAINED)))) == "a"  # fmt: skip
