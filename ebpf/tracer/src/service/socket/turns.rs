//! Whose turn it is to have history read: users in a ring, and each user's connections in a ring. Reading takes
//! long, and whoever reads most must not have more of it than others.

use std::collections::VecDeque;

/// Connections that wait for a piece.
#[derive(Debug, Default)]
pub struct Turns {
    users: VecDeque<(u32, VecDeque<u64>)>,
}

impl Turns {
    /// A user's connection waits, behind those that already do.
    pub fn add(&mut self, uid: u32, key: u64) {
        match self.users.iter_mut().find(|(user, _)| *user == uid) {
            Some((_, keys)) if keys.contains(&key) => {}
            Some((_, keys)) => keys.push_back(key),
            None => self.users.push_back((uid, VecDeque::from([key]))),
        }
    }

    /// The next one, which waits no more.
    pub fn take(&mut self) -> Option<u64> {
        let (uid, mut keys) = self.users.pop_front()?;
        let key = keys.pop_front();
        if !keys.is_empty() {
            self.users.push_back((uid, keys));
        }
        key
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_the_same_share_whatever_their_connections() {
        let mut turns = Turns::default();
        for key in 0..60 {
            turns.add(1, key);
            turns.add(1, key);
        }
        turns.add(2, 100);
        let order: Vec<u64> = std::iter::from_fn(|| {
            let key = turns.take()?;
            // Both have more to read.
            turns.add(if key < 100 { 1 } else { 2 }, key);
            Some(key)
        })
        .take(8)
        .collect();
        assert_eq!(order, [0, 100, 1, 100, 2, 100, 3, 100]);
    }

    #[test]
    fn each_connection_waits_once() {
        let mut turns = Turns::default();
        for key in [7, 7, 8] {
            turns.add(1, key);
        }
        assert_eq!((turns.take(), turns.take()), (Some(7), Some(8)));
        assert!(turns.is_empty());
        assert_eq!(turns.take(), None);
    }
}
