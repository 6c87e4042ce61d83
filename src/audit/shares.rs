//! Equal shares of bounded room: who writes much has the oldest of it left out, and nothing of what others wrote.

use std::collections::BTreeMap;

use super::line::{Whose, glance};

/// How much was left out, of whom.
pub type LeftOut = BTreeMap<u32, u64>;

/// A line takes at least so much room, in bytes, so that the memory that is needed to choose among lines is bounded as well.
const SHORTEST: usize = 128;

/// The largest share with which these sizes, those that are larger cut down to it, have room.
pub fn share(sizes: impl Iterator<Item = usize>, room: usize) -> usize {
    let mut sizes: Vec<usize> = sizes.collect();
    sizes.sort_unstable();
    let mut left = room;
    for (at, size) in sizes.iter().enumerate() {
        let equal = left / (sizes.len() - at);
        if *size > equal {
            return equal;
        }
        left -= size;
    }
    usize::MAX
}

/// How much is held before something is left out: each time costs an order of all that is held.
pub fn most(room: usize) -> usize {
    room.saturating_add(room / 2)
}

/// Lines, each user's newest.
#[derive(Debug)]
pub struct Newest {
    text: Vec<u8>,
    room: usize,
    held: usize,
    whose: Whose,
    left_out: LeftOut,
}

impl Newest {
    /// With room for so many bytes.
    pub fn new(room: usize, whose: Whose) -> Self {
        Self {
            text: Vec::new(),
            room,
            held: 0,
            whose,
            left_out: LeftOut::new(),
        }
    }

    /// One more.
    pub fn push(&mut self, line: &[u8]) {
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        self.held += cost(line);
        if self.held > most(self.room) {
            self.shrink();
        }
    }

    /// All that has room, each line with its end, and how much had none.
    pub fn end(mut self) -> (Vec<u8>, LeftOut) {
        if self.held > self.room {
            self.shrink();
        }
        (self.text, self.left_out)
    }

    fn shrink(&mut self) {
        let mut lines: Vec<(f64, u32, &[u8])> = Vec::with_capacity(self.held / SHORTEST);
        let mut of: BTreeMap<u32, usize> = BTreeMap::new();
        for line in self.text.split(|&byte| byte == b'\n') {
            let (Some((_, time)), Some(uid)) = (glance(line), self.whose.user(line)) else {
                continue;
            };
            *of.entry(uid).or_default() += cost(line);
            lines.push((time, uid, line));
        }
        let share = share(of.values().copied(), self.room);
        lines.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        of.values_mut().for_each(|size| *size = 0);
        lines.retain(|(_, uid, line)| {
            let used = of.entry(*uid).or_default();
            // What is older than one that had no room has none either.
            *used = used.saturating_add(cost(line));
            let has_room = *used <= share;
            if !has_room {
                *used = usize::MAX;
                *self.left_out.entry(*uid).or_default() += 1;
            }
            has_room
        });
        let mut text = Vec::with_capacity(lines.iter().map(|(_, _, line)| line.len() + 1).sum());
        self.held = 0;
        for (_, _, line) in lines.iter().rev() {
            self.held += cost(line);
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        self.text = text;
    }
}

fn cost(line: &[u8]) -> usize {
    SHORTEST.max(line.len() + 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn who_has_little_has_it_whole() {
        for (sizes, room, expected) in [
            (&[][..], 9, usize::MAX),
            (&[5, 4], 9, usize::MAX),
            (&[5, 5], 9, 4),
            (&[1, 900, 3], 10, 6),
            (&[1, 900, 900, 3], 10, 3),
            (&[7], 0, 0),
        ] {
            assert_eq!(share(sizes.iter().copied(), room), expected, "{sizes:?}");
        }
    }

    /// One who floods, before and after what others wrote, with times of the past and of a far future.
    #[test]
    fn a_flood_pushes_out_nothing_of_others() {
        let room = 64 << 10;
        let line = |uid: u32, time: u64| {
            format!(
                "{{\"uid\":{uid},\"time\":{time}.5,\"name\":\"{:200}\"}}",
                ""
            )
        };
        let mut newest = Newest::new(room, Whose::Each(None));
        for one in 0..40 {
            newest.push(line(7, one).as_bytes());
        }
        for one in 0..20_000 {
            newest.push(line(666, 1_000_000 + one).as_bytes());
            assert!(newest.text.len() <= most(room) && newest.text.capacity() <= 4 * room);
        }
        for one in 0..40 {
            newest.push(line(8, one).as_bytes());
        }
        let (text, left_out) = newest.end();
        assert!(text.len() <= room);
        let text = String::from_utf8(text).unwrap();
        let of = |uid: u32| {
            text.lines()
                .filter(|line| line.starts_with(&format!("{{\"uid\":{uid},")))
                .count()
        };
        assert_eq!((of(7), of(8)), (40, 40));
        assert!(of(666) > 100 && text.contains(&line(666, 1_019_999)));
        assert_eq!(left_out, [(666, 20_000 - of(666) as u64)].into());
    }
}
