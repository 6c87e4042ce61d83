//! A table that counts and never grows beyond its bounds: what is recorded comes from processes that may
//! open a million names to fill the memory of whoever watches them.

use std::collections::BTreeMap;

/// How much a table may hold.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Rows.
    pub rows: usize,
    /// Bytes of all keys.
    pub bytes: usize,
}

/// The key of a row.
pub trait Key: Ord + Clone {
    /// Bytes that it holds.
    fn bytes(&self) -> usize;
}

impl Key for String {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A row: what is kept longest when there is no room for all.
pub trait Row: Default + Clone {
    /// The row with the least weight goes first.
    fn weight(&self) -> u64;
}

/// Rows by key.
#[derive(Clone, Debug)]
pub struct Table<K, R> {
    rows: BTreeMap<K, R>,
    bytes: usize,
    bounds: Bounds,
    /// Rows that there was no room for any more.
    pub forgotten: u64,
}

impl<K: Key, R: Row> Table<K, R> {
    /// An empty one.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            rows: BTreeMap::new(),
            bytes: 0,
            bounds,
            forgotten: 0,
        }
    }

    /// Changes the row of that key, which is a new one if there was none.
    pub fn with(&mut self, key: K, change: impl FnOnce(&mut R)) {
        if let Some(row) = self.rows.get_mut(&key) {
            change(row);
            return;
        }
        let size = key.bytes();
        let full = self.rows.len() >= self.bounds.rows
            || self.bytes.saturating_add(size) > self.bounds.bytes;
        if full {
            self.make_room();
        }
        let mut row = R::default();
        change(&mut row);
        self.bytes += size;
        self.rows.insert(key, row);
    }

    /// Lets the lightest quarter go, and more as long as they are too large; so that the next time is far off.
    fn make_room(&mut self) {
        let mut order: Vec<(u64, usize, K)> = self
            .rows
            .iter()
            .map(|(key, row)| (row.weight(), key.bytes(), key.clone()))
            .collect();
        order.sort_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
        let rows = self.bounds.rows - self.bounds.rows.div_ceil(4);
        let bytes = self.bounds.bytes / 4 * 3;
        for (_, size, key) in order {
            if self.rows.len() <= rows && self.bytes <= bytes {
                break;
            }
            self.rows.remove(&key);
            self.bytes -= size;
            self.forgotten = self.forgotten.saturating_add(1);
        }
    }

    /// All rows, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &R)> {
        self.rows.iter()
    }

    /// All rows, the heaviest first, then in the order of their keys.
    #[must_use]
    pub fn heaviest(&self) -> Vec<(&K, &R)> {
        let mut all: Vec<(&K, &R)> = self.rows.iter().collect();
        // A stable sort keeps the order of keys.
        all.sort_by_key(|(_, row)| std::cmp::Reverse(row.weight()));
        all
    }

    /// The row of that key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&R> {
        self.rows.get(key)
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Count(u64);

    impl Row for Count {
        fn weight(&self) -> u64 {
            self.0
        }
    }

    fn table(rows: usize, bytes: usize) -> Table<String, Count> {
        Table::new(Bounds { rows, bytes })
    }

    #[test]
    fn what_is_seen_often_stays_while_a_flood_goes_by() {
        let mut table = table(100, 1 << 20);
        for _ in 0..5 {
            table.with("often".into(), |row| row.0 += 1);
        }
        for number in 0..10_000 {
            table.with(format!("flood{number}"), |row| row.0 += 1);
        }
        assert!(table.len() <= 100);
        assert_eq!(table.get(&"often".to_owned()).map(|row| row.0), Some(5));
        assert_eq!(table.forgotten + table.len() as u64, 10_001);
        assert_eq!(table.heaviest()[0].0, "often");
    }

    #[test]
    fn long_keys_count_by_their_bytes() {
        let mut table = table(1000, 1000);
        for number in 0..50 {
            table.with(format!("{number:0100}"), |row| row.0 += 1);
        }
        assert!(table.len() <= 10, "{}", table.len());
        assert!(table.bytes <= 1000);
    }
}
