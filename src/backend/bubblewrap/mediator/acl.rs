//! POSIX access control lists as attributes hold them (`acl(5)`; `struct posix_acl_xattr_header` and
//! `_entry`, include/uapi/linux/posix_acl_xattr.h): a version, and entries of a tag, rights and an id,
//! little-endian.

use std::ffi::CStr;

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
/// `ACL_USER` and `ACL_GROUP` (include/uapi/linux/posix_acl.h): the entries with an id.
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;
/// `ACL_USER_OBJ`, `ACL_GROUP_OBJ`, `ACL_MASK`, `ACL_OTHER`: those without.
const PLAIN: [u16; 4] = [0x01, 0x04, 0x10, 0x20];
/// `ACL_UNDEFINED_ID`, in entries without an id.
const UNDEFINED: u32 = u32::MAX;
/// Reading, writing and executing.
const MOST_RIGHTS: u16 = 7;

/// Whether an attribute is such a list.
pub(super) fn is_name(name: &CStr) -> bool {
    [
        c"system.posix_acl_access".to_bytes(),
        c"system.posix_acl_default".to_bytes(),
    ]
    .contains(&name.to_bytes())
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    rights: u16,
    id: u32,
}

/// A list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List(Vec<Entry>);

impl List {
    /// Understands a value; `None` for what is no list that could be set.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (version, rest) = value.split_first_chunk::<4>()?;
        let (entries, left) = rest.as_chunks::<8>();
        if u32::from_le_bytes(*version) != VERSION || !left.is_empty() {
            return None;
        }
        let entry = |&[t0, t1, r0, r1, i0, i1, i2, i3]: &[u8; 8]| {
            let (tag, rights) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([r0, r1]));
            let id = u32::from_le_bytes([i0, i1, i2, i3]);
            let has_id = tag == USER || tag == GROUP;
            let known = has_id || PLAIN.contains(&tag);
            // The kernel does not look at the id of an entry without one.
            let id = if has_id { id } else { UNDEFINED };
            let sound = known && rights <= MOST_RIGHTS && !(has_id && id == UNDEFINED);
            sound.then_some(Entry { tag, rights, id })
        };
        entries.iter().map(entry).collect::<Option<_>>().map(Self)
    }

    /// The value, written anew.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend(entry.tag.to_le_bytes());
            value.extend(entry.rights.to_le_bytes());
            value.extend(entry.id.to_le_bytes());
        }
        value
    }

    /// Whether it names a user or a group besides these.
    pub(super) fn names_others(&self, uid: u32, gid: u32) -> bool {
        self.0.iter().any(|entry| match entry.tag {
            USER => entry.id != uid,
            GROUP => entry.id != gid,
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let all = entries
            .iter()
            .map(|&(tag, rights, id)| Entry { tag, rights, id });
        List(all.collect()).bytes()
    }

    #[test]
    fn a_list_is_read_and_written_anew() {
        let text = value(&[
            (1, 7, UNDEFINED),
            (8, 6, 3000),
            (16, 7, UNDEFINED),
            (32, 0, UNDEFINED),
        ]);
        let list = List::parse(&text).unwrap();
        assert_eq!(list.bytes(), text);
        assert!(list.names_others(1000, 1000) && !list.names_others(1000, 3000));
        // What the kernel does not look at is not handed on.
        let odd = value(&[(1, 7, 42)]);
        assert_eq!(
            List::parse(&odd).unwrap().bytes(),
            value(&[(1, 7, UNDEFINED)])
        );
        assert_eq!(List::parse(&value(&[])), Some(List(Vec::new())));
    }

    #[test]
    fn what_is_no_list_is_none() {
        let good = value(&[(2, 6, 1000)]);
        assert!(List::parse(&good).is_some());
        let mut version = good.clone();
        version[0] = 1;
        for bad in [
            &[][..],
            &good[..3],
            &good[..11],
            &version,
            &value(&[(2, 8, 1000)]),
            &value(&[(3, 6, 1000)]),
            &value(&[(2, 6, UNDEFINED)]),
        ] {
            assert_eq!(List::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn two_attributes_are_lists() {
        assert!(is_name(c"system.posix_acl_access") && is_name(c"system.posix_acl_default"));
        for name in [
            c"",
            c"user.x",
            c"system.posix_acl",
            c"system.posix_acl_accessx",
        ] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
