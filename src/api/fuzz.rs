//! Fuzz targets of the parsers of this room: replies, credentials and watches.

use http::StatusCode;
use jiff::Timestamp;

use super::{
    classify::classify,
    exchange::Reply,
    place::Place,
    plugin::{self, Given, LEAST},
    request::Request,
    watch::{self, Lines},
};
use crate::request::Answer;

/// A status and a body: only a 2xx that can be read is an object, and only a 404 that says so is about the Lease.
pub(crate) fn reply(bytes: &[u8]) {
    let Some(([high, low], body)) = bytes.split_first_chunk() else { return };
    let Ok(status) = StatusCode::from_u16(u16::from_be_bytes([*high, *low])) else { return };
    let reply = Reply { status, retry_after: None, warnings: Vec::new(), body: body.to_vec().into() };
    let is_absence = reply.is_absence_of("leases", "lease");
    match classify(&Request::get(&Place::lease("default", "lease")), Ok(reply)).answer {
        Answer::Object(object) => assert!(status.is_success() && object.is_object()),
        Answer::NotFound => assert!(is_absence),
        Answer::Conflict => assert_eq!(status, StatusCode::CONFLICT),
        Answer::Refused { .. } => assert!(status.is_client_error()),
        Answer::Unknown { .. } => {}
        Answer::Deleted | Answer::Listed { .. } => panic!("that was not asked for"),
    }
}

/// Whatever a plugin prints, it is no credentials, or a token that stands in a header as it is, or a certificate.
pub(crate) fn credential(bytes: &[u8]) {
    let Some(Given { token, identity, good }) = plugin::read(bytes, Timestamp::UNIX_EPOCH) else { return };
    assert!(good >= LEAST && (token.is_some() || identity.is_some()));
    if let Some(header) = token {
        assert!(header.len() > "Bearer ".len() && header.is_sensitive());
        assert!(!header.as_bytes().iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
    }
}

/// A stream cut into pieces as long as its first byte says: however it is cut, it yields the same events.
pub(crate) fn watch(bytes: &[u8]) {
    let Some((length, stream)) = bytes.split_first() else { return };
    let places = [Place::lease("default", "lease")];
    let watched = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece);
            while let Ok(Some(line)) = lines.next() {
                match watch::read(&line, &places) {
                    Ok(event) => seen.extend(event),
                    Err(end) => return (seen, Some(end)),
                }
            }
        }
        (seen, None)
    };
    let cut = watched(&mut stream.chunks(usize::from(*length).max(1)));
    assert_eq!(watched(&mut std::iter::once(stream)), cut);
}
