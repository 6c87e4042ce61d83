//! A ClientHello (RFC 8446, 4.1.2), with what it takes to be one and no more.

/// A ClientHello, in records of at most `record` bytes.
pub(crate) fn hello_in(name: Option<&str>, more: &[u8], record: usize) -> Vec<u8> {
    let mut extensions = Vec::new();
    let mut extension = |kind: u16, body: &[u8]| {
        extensions.extend(kind.to_be_bytes());
        extensions.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        extensions.extend(body);
    };
    if let Some(name) = name {
        let length = u16::try_from(name.len()).unwrap();
        let list = [
            &(length + 3).to_be_bytes()[..],
            &[0],
            &length.to_be_bytes(),
            name.as_bytes(),
        ]
        .concat();
        extension(0, &list);
    }
    extension(13, &[0, 2, 4, 3]);
    extension(43, &[2, 3, 4]);
    extensions.extend(more);
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1, length[1], length[2], length[3]], &body[..]].concat();
    let mut records = Vec::new();
    for part in message.chunks(record) {
        records.extend([0x16, 3, 1]);
        records.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
        records.extend(part);
    }
    records
}

/// A ClientHello for a name, or for none.
pub(crate) fn hello(name: Option<&str>) -> Vec<u8> {
    hello_in(name, &[], 16_000)
}
