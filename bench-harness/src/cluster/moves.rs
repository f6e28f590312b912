//! From replies with tokens to moves: which shard changed its owner when, and how long the messages waited that were
//! in flight meanwhile.

use core::time::Duration;
use std::time::Instant;

use super::load::Seen;

/// A shard that changed its owner.
#[derive(Clone, Debug)]
pub(super) struct Move {
    /// When the first reply of the new owner arrived.
    pub served: Instant,
    /// How long each message took that was due before that and was answered by the new owner.
    pub in_flight: Vec<Duration>,
}

/// All changes of owner, in no special order. The second value counts replies of an owner that were sent after a reply
/// of a later one had arrived: none, ever.
pub(super) fn moves(mut seen: Vec<Seen>) -> (Vec<Move>, u64) {
    seen.sort_by_key(|seen| (seen.shard, seen.token, seen.replied));
    let mut moves = Vec::new();
    let mut old_owners = 0;
    for of_shard in seen.chunk_by(|a, b| a.shard == b.shard) {
        let mut previous: Option<&[Seen]> = None;
        for of_owner in of_shard.chunk_by(|a, b| a.token == b.token) {
            let served = of_owner[0].replied;
            if let Some(previous) = previous {
                old_owners += previous.iter().filter(|seen| seen.due > served).count() as u64;
                let in_flight = of_owner.iter().filter(|seen| seen.due <= served);
                let in_flight = in_flight.map(|seen| seen.replied - seen.due).collect();
                moves.push(Move { served, in_flight });
            }
            previous = Some(of_owner);
        }
    }
    (moves, old_owners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_seen_by_the_messages_that_waited_for_it() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let seen = |shard, due, replied, token| Seen { shard, due: at(due), replied: at(replied), token };
        let replies = vec![
            seen(1, 40, 41, 9),
            seen(1, 0, 1, 5),
            seen(1, 10, 31, 9),
            seen(1, 20, 30, 9),
            seen(2, 0, 1, 5),
            seen(2, 10, 11, 5),
        ];
        let (moves, old_owners) = moves(replies);
        assert_eq!((moves.len(), old_owners), (1, 0));
        assert_eq!(moves[0].served, at(30));
        let mut in_flight = moves[0].in_flight.clone();
        in_flight.sort();
        assert_eq!(in_flight, [Duration::from_millis(10), Duration::from_millis(21)]);
    }

    #[test]
    fn an_old_owner_that_answers_is_seen() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let seen = |due, replied, token| Seen { shard: 1, due: at(due), replied: at(replied), token };
        let (_, old_owners) = moves(vec![seen(0, 1, 5), seen(2, 3, 9), seen(4, 5, 5)]);
        assert_eq!(old_owners, 1);
    }
}
