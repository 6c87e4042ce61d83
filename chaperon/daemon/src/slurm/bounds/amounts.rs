//! Numbers, as Slurm's options have them. What is not understood is `None`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Numbers above this stand for something else (`slurm.h`).
const LARGEST: u64 = 0xffff_fff0;

pub(super) fn number(text: &str) -> Option<u64> {
    // `--nodes=1k` (`sbatch(1)`): K and M multiply.
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1024),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1024 * 1024),
        _ => (text, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    number
        .checked_mul(factor)
        .filter(|&number| number < LARGEST)
}

/// MiB of `500`, `500M`, `2G`, `2GB` (`sbatch(1)`, `--mem`), rounded up; 0 for an empty text.
pub(super) fn mebibytes(text: &OsStr) -> Option<u64> {
    let text = text.to_str()?.to_ascii_uppercase();
    let text = text.strip_suffix('B').unwrap_or(&text);
    let (digits, shift) = match text.as_bytes().last() {
        None => return Some(0),
        Some(b'K') => (&text[..text.len() - 1], 0),
        Some(b'M') => (&text[..text.len() - 1], 10),
        Some(b'G') => (&text[..text.len() - 1], 20),
        Some(b'T') => (&text[..text.len() - 1], 30),
        Some(_) => (text, 10),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok().filter(|number| *number < LARGEST)?;
    Some(number.checked_mul(1 << shift)?.div_ceil(1024))
}

/// The largest number of `2`, `2-4`, `1,3-5`, `4-16:4`.
pub(super) fn most_of(text: &str) -> Option<u64> {
    let mut most = 0;
    for part in text.split(',') {
        let range = part.split_once(':').map_or(part, |(range, _)| range);
        let last = match range.split_once('-') {
            None => number(range)?,
            // Behind a dash 0 means that there is no limit.
            Some((first, last)) => number(first)?.max(number(last).filter(|last| *last > 0)?),
        };
        most = most.max(last);
    }
    Some(most)
}

/// How many names a list of nodes has: `n1,n[1-4,7]`. Several brackets in a name multiply.
pub fn count_nodes(text: &OsStr) -> Option<u64> {
    let text = text.to_str()?;
    let (mut total, mut name, mut rest) = (0u64, 1u64, text);
    while let Some(at) = rest.find(['[', ',']) {
        if rest.as_bytes()[at] == b',' {
            total = total.checked_add(name)?;
            name = 1;
            rest = &rest[at + 1..];
            continue;
        }
        let (inside, behind) = rest[at + 1..].split_once(']')?;
        let mut here = 0u64;
        for part in inside.split(',') {
            here = here.checked_add(match part.split_once('-') {
                None => {
                    number(part)?;
                    1
                }
                Some((first, last)) => number(last)?.checked_sub(number(first)?)?.checked_add(1)?,
            })?;
        }
        name = name.checked_mul(here)?;
        rest = behind;
    }
    total.checked_add(name)
}

/// Whether this is the name of a type, and no number in a form of Slurm's own (`+8`, `1kb`).
fn is_type(text: &str) -> bool {
    let named = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(named)
}

/// GPUs by their type; without one it is empty.
pub(super) type Devices = Vec<(String, u64)>;

/// GPUs of `2`, `a100:2`, `a100:2,v100:1`.
pub(super) fn devices(text: &OsStr) -> Option<Devices> {
    let parts = text.to_str()?.split(',');
    let each = parts.map(|part| {
        let (kind, count) = part.rsplit_once(':').unwrap_or(("", part));
        // A type without a number is one.
        match number(count) {
            Some(count) => Some((kind.to_owned(), count)),
            None if !part.contains(':') && is_type(part) => Some((part.to_owned(), 1)),
            None => None,
        }
    });
    each.collect()
}

/// Parts of a GPU that are asked for by the part, and so many are a GPU. Each shard may be another GPU's; of
/// `mps` each GPU has 100 unless the cluster says otherwise (`gres.conf(5)`, Count).
const SHARES: [(&str, u64); 2] = [("shard", 1), ("mps", 100)];

/// GPUs of `gpu:2`, `gres/gpu:a100:2,licence:1`, `gpu`, and of what shares GPUs: `shard:2`, `mps:50`.
pub(super) fn named_gpus(text: &OsStr) -> Option<u64> {
    named_devices(text).as_ref().map(sum)
}

/// GPUs of the totals of a job, where those of a type may stand beside all of them: `gres/gpu=4,gres/gpu:a100=4`.
pub fn total_gpus(text: &OsStr) -> Option<u64> {
    let all = named_devices(text)?;
    let (plain, typed): (Devices, Devices) = all.into_iter().partition(|(kind, _)| kind.is_empty());
    Some(sum(&plain).max(sum(&typed)))
}

/// How many there are of all types.
pub(super) fn sum(gpus: &Devices) -> u64 {
    let counts = gpus.iter().map(|(_, count)| *count);
    counts.fold(0, u64::saturating_add)
}

/// GPUs as [`named_gpus`] counts them, by their types.
pub(super) fn named_devices(text: &OsStr) -> Option<Devices> {
    let mut all = Devices::new();
    for part in text.to_str()?.split(',') {
        // The number may stand behind `=` and have a list of cores behind it.
        let part = part.split('(').next().unwrap_or(part);
        let mut fields = part.split(['=', '/', ':']).peekable();
        fields.next_if(|first| first.eq_ignore_ascii_case("gres"));
        let name = fields.next().unwrap_or_default().to_ascii_lowercase();
        // Every kind counts that could be one: also what a site calls so.
        let share = SHARES.iter().find(|(share, _)| name == *share);
        let each = match share {
            Some((_, of_one)) => *of_one,
            None if name.starts_with("gpu") => 1,
            None => continue,
        };
        let rest: Vec<&str> = fields.collect();
        let (kind, count) = match rest[..] {
            [] => ("", 1),
            [only] => match number(only) {
                Some(count) => ("", count),
                None if is_type(only) => (only, 1),
                None => return None,
            },
            [kind, count] => (kind, number(count)?),
            _ => return None,
        };
        // A part of a GPU may be another one's than those that are asked for as a whole.
        let kind = share.map_or(kind, |(share, _)| share);
        all.push((kind.to_owned(), count.div_ceil(each)));
    }
    Some(all)
}

/// What `--tres-per-task` asks for, for each task.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PerTask {
    pub(super) cpus: u64,
    pub(super) gpus: Devices,
    pub(super) licenses: Vec<String>,
}

/// `cpu:2,gres/gpu:a100:1,license/a=1`. Slurm looks for the words `cpu`, `gres` and `license` wherever they stand
/// (`slurm_get_next_tres`, 26.05): where one is that begins no part, nobody knows what it means.
pub(super) fn per_task(text: &OsStr) -> Option<PerTask> {
    let mut all = PerTask::default();
    for part in text.to_str()?.split(',') {
        let (kind, rest) = part.split_once(['/', ':', '='])?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@:=".contains(&byte);
        let has = |word: &&str| rest.to_ascii_lowercase().contains(*word);
        if !rest.bytes().all(plain) || ["cpu", "gres", "license", "mem"].iter().any(has) {
            return None;
        }
        match kind {
            "cpu" => all.cpus = all.cpus.max(number(rest)?),
            "gres" => all.gpus.extend(named_devices(rest.as_ref())?),
            "license" => {
                let (name, count) = rest.split_once([':', '=']).unwrap_or((rest, "1"));
                number(count)?;
                all.licenses.push(name.to_owned());
            }
            _ => return None,
        }
    }
    Some(all)
}

/// The product of `2:8:1`, the shape of a node (`sbatch(1)`, `--extra-node-info`), and the threads of a core in it. Each
/// may be `*` or a range.
pub(super) fn shape(text: &OsStr) -> Option<(u64, Option<u64>)> {
    let parts = text.to_str()?.split(':');
    let each = parts.map(|part| match part {
        "*" => Some(None),
        range => most_of(range).map(Some),
    });
    let all: Vec<Option<u64>> = each.collect::<Option<_>>()?;
    let given = all.iter().flatten();
    let product = given.fold(1u64, |product, each| product.saturating_mul((*each).max(1)));
    Some((product, all.get(2).copied().flatten()))
}

/// The tasks of an array: `0-15`, `0,6,16-32`, `0-15:4`, with `%4` behind it (`sbatch(1)`).
pub fn array_tasks(text: &OsStr) -> Option<u64> {
    let text = std::str::from_utf8(text.as_bytes()).ok()?;
    let text = text.split_once('%').map_or(text, |(list, _)| list);
    let text = text.trim_start_matches('[').trim_end_matches(']');
    let mut sum = 0u64;
    for part in text.split(',') {
        let (range, stride) = match part.split_once(':') {
            None => (part, 1),
            Some((range, stride)) => (range, number(stride).filter(|&stride| stride > 0)?),
        };
        let count = match range.split_once('-') {
            None => number(range).map(|_| 1)?,
            Some((first, last)) => number(last)?.checked_sub(number(first)?)? / stride + 1,
        };
        sum = sum.checked_add(count)?;
    }
    Some(sum)
}
