//! A stand-in for the Messages API: it plays a script of tool calls to a real agent, and records
//! every byte that the agent sends.
//!
//! The model is the one part of an agent that a test cannot have, and the one whose behaviour a test
//! of the jail must choose: it plays the model that does what its worst instructions say.
//!
//! It listens on the loopback, speaks HTTP/1.1 with keep-alive, and streams answers as server-sent
//! events in chunks. The shapes are those of <https://docs.anthropic.com/en/api/messages> and
//! <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.
//!
//! The server holds no position in the script. A request carries the whole conversation, and each tool
//! call has its label in its id: the answer to a request is the first step that the conversation does
//! not hold. So a request that an agent repeats gets the same answer again.
//!
//! Other agents speak to other APIs: what differs is an [`Answer`], see `dialects`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::{Value, json};

/// Bytes of a request line and its headers together. Real ones are below 2 KiB.
const HEAD_LIMIT: u64 = 64 * 1024;
/// Bytes of a request's body: a conversation with its system prompt and tool schemas is about 200 KiB.
const BODY_LIMIT: usize = 16 * 1024 * 1024;
/// Characters of tool input in one streamed fragment. Small, so that an agent has to put JSON
/// together from pieces that end anywhere, as with the real API.
const FRAGMENT: usize = 24;

/// What comes before a call's label in its id. The real API's ids have the same prefix.
const ID_PREFIX: &str = "toolu_";

/// One answer of the model.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Calls of tools, all in one message. The conversation goes on with their results.
    Call(Vec<ToolUse>),
    /// Text, which ends the conversation.
    Say(String),
}

/// One call of a tool of the agent's.
#[derive(Clone, Debug)]
pub(crate) struct ToolUse {
    /// Names the call in the script; its result is found by this name.
    pub(crate) label: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) input: Value,
}

/// A call of `tool` under the name `label`, which must be unique in its script and consist of
/// letters, digits and underscores.
pub(crate) fn call(label: &'static str, tool: &'static str, input: Value) -> ToolUse {
    ToolUse { label, tool, input }
}

/// What a tool call came back with.
#[derive(Clone, Debug)]
pub(crate) struct ToolResult {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

/// The server. It stops listening when dropped.
pub(crate) struct MessagesApi {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// How one API answers a request.
pub(crate) type Answer = fn(&TcpStream, &Request, &Shared) -> io::Result<()>;

/// What the connections of one server have in common.
pub(crate) struct Shared {
    pub(crate) script: Vec<Step>,
    answer: Answer,
    stopping: AtomicBool,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    requests: Vec<Request>,
    /// What should not have happened, in words: a tool that the agent does not have, bad HTTP.
    problems: Vec<String>,
}

/// A request of an agent's.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path without the query.
    pub(crate) path: String,
    /// Request line and headers, as received.
    head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl MessagesApi {
    /// Starts a server that plays `script`, on a port of the kernel's choice.
    pub(crate) fn start(script: Vec<Step>) -> io::Result<Self> {
        Self::speaking(messages, script)
    }

    /// The same for another API.
    pub(crate) fn speaking(answer: Answer, script: Vec<Step>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script,
            answer,
            stopping: AtomicBool::new(false),
            log: Mutex::default(),
        });
        let for_listener = Arc::clone(&shared);
        thread::Builder::new()
            .name("messages-api".into())
            .spawn(move || accept(&listener, &for_listener))?;
        Ok(Self { address, shared })
    }

    /// What an agent takes as its base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The result of every call of the script that was answered, by label.
    pub(crate) fn results(&self) -> BTreeMap<String, ToolResult> {
        let mut results = BTreeMap::new();
        for request in &self.shared.log().requests {
            let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
                continue;
            };
            for block in blocks(&body) {
                let Some(label) = label_of(block, "tool_result", "tool_use_id") else {
                    continue;
                };
                results.entry(label.to_owned()).or_insert(ToolResult {
                    text: text_of(&block["content"]),
                    is_error: block["is_error"] == Value::Bool(true),
                });
            }
        }
        results
    }

    /// Every request's body that is JSON, in the order received.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        let log = self.shared.log();
        let all = log.requests.iter();
        all.filter_map(|request| serde_json::from_slice(&request.body).ok())
            .collect()
    }

    /// Method and path of every request, in the order received.
    pub(crate) fn requests(&self) -> Vec<String> {
        let line = |request: &Request| format!("{} {}", request.method, request.path);
        self.shared.log().requests.iter().map(line).collect()
    }

    /// Whether `needle` was sent in any request: line, headers or body, as it stands.
    pub(crate) fn received(&self, needle: &str) -> bool {
        let needle = needle.as_bytes();
        let within = |bytes: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
        let log = self.shared.log();
        log.requests
            .iter()
            .any(|request| within(&request.head) || within(&request.body))
    }

    /// What went wrong in the conversation itself, whatever the agent made of it.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.shared.log().problems.clone()
    }
}

impl Drop for MessagesApi {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // accept() has no other way to be told.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        // A record is whole or absent whatever thread died, so a poisoned lock is still good.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn problem(&self, what: String) {
        self.log().problems.push(what);
    }

    /// The step that a conversation has come to.
    fn step(&self, body: &Value) -> Step {
        let offered: Vec<&str> = body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        let called: Vec<&str> = blocks(body)
            .filter_map(|block| label_of(block, "tool_use", "id"))
            .collect();
        self.next(&offered, &called)
    }

    /// The step that a conversation has come to in which these tools are offered, and the calls of
    /// these labels were made.
    pub(crate) fn next(&self, offered: &[&str], called: &[&str]) -> Step {
        if offered.is_empty() {
            // Not the agent's conversation, but one of the small questions that it asks beside it,
            // as for a title.
            return Step::Say("ok".into());
        }
        let next = self.script.iter().find(|step| match step {
            Step::Call(calls) => !calls.iter().any(|call| called.contains(&call.label)),
            Step::Say(_) => true,
        });
        match next {
            None => {
                self.problem("the script has no step left, and no final text".into());
                Step::Say("(end of the script)".into())
            }
            Some(Step::Call(calls)) => {
                if let Some(call) = calls.iter().find(|call| !offered.contains(&call.tool)) {
                    self.problem(format!(
                        "{}: the agent does not offer the tool {}, but only {offered:?}",
                        call.label, call.tool
                    ));
                    return Step::Say(format!("(no tool {})", call.tool));
                }
                Step::Call(calls.clone())
            }
            Some(step) => step.clone(),
        }
    }
}

/// The content blocks of all messages of a conversation. Content that is a plain string has none.
fn blocks(body: &Value) -> impl Iterator<Item = &Value> {
    body["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|message| message["content"].as_array())
        .flatten()
}

/// The script's label in the id `key` of a block of type `kind`.
fn label_of<'a>(block: &'a Value, kind: &str, key: &str) -> Option<&'a str> {
    if block["type"] != kind {
        return None;
    }
    block[key].as_str()?.strip_prefix(ID_PREFIX)
}

/// The text of a tool result: a string, or blocks of which some are text.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .filter_map(|block| block["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                shared.problem(format!("accept: {error}"));
                return;
            }
        };
        let for_connection = Arc::clone(shared);
        // Ends with its connection, which ends with the agent.
        thread::spawn(move || {
            if let Err(error) = serve(&stream, &for_connection) {
                // An agent that has its answer, or is killed, closes as it likes.
                let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                if !gone.contains(&error.kind()) {
                    for_connection.problem(format!("connection: {error}"));
                }
            }
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

/// Answers requests on one connection until the agent closes it.
fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream);
    while let Some(request) = read_request(&mut input)? {
        shared.log().requests.push(request.clone());
        (shared.answer)(stream, &request, shared)?;
    }
    Ok(())
}

/// The next request; `None` at the end of the connection.
fn read_request(input: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
    let bad = |what: &str| io::Error::new(ErrorKind::InvalidData, what);

    let mut head = Vec::new();
    let mut limited = input.by_ref().take(HEAD_LIMIT);
    loop {
        let start = head.len();
        if limited.read_until(b'\n', &mut head)? == 0 {
            return if head.is_empty() {
                Ok(None)
            } else {
                Err(bad("a request head that is cut off or too long"))
            };
        }
        if head[start..].trim_ascii().is_empty() {
            break;
        }
    }
    let text = str::from_utf8(&head).map_err(|_| bad("a request head that is not UTF-8"))?;
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(bad("a request line without a target"));
    };
    let path = target.split('?').next().unwrap_or_default();

    let mut length = 0;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value
                .trim()
                .parse()
                .map_err(|_| bad("a Content-Length that is not a number"))?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(bad("a request body in chunks, which is not supported"));
        }
    }
    if length > BODY_LIMIT {
        return Err(bad("a request body that is too long"));
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;

    Ok(Some(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        head,
        body,
    }))
}

/// Answers an agent that speaks to the Messages API.
pub(crate) fn messages(stream: &TcpStream, request: &Request, shared: &Shared) -> io::Result<()> {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    match (request.method.as_str(), request.path.as_str()) {
        // Agents open a connection early with HEAD.
        ("HEAD", _) => send_head(stream, "200 OK", "content-length: 0"),
        ("POST", "/v1/messages") if body.is_object() => {
            let step = shared.step(&body);
            if body["stream"] == true {
                send_stream(stream, &body["model"], &step)
            } else {
                let (content, stop_reason) = content(&step);
                let mut message = message(&body["model"]);
                message["content"] = content.into();
                message["stop_reason"] = stop_reason.into();
                send_json(stream, "200 OK", &message)
            }
        }
        ("POST", "/v1/messages/count_tokens") => {
            send_json(stream, "200 OK", &json!({"input_tokens": 100}))
        }
        _ => {
            let error = json!({"type": "not_found_error", "message": "no such endpoint"});
            let body = json!({"type": "error", "error": error});
            send_json(stream, "404 Not Found", &body)
        }
    }
}

/// A message without content, as the stream begins with it.
fn message(model: &Value) -> Value {
    json!({
        "id": "msg_test", "type": "message", "role": "assistant", "model": model,
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 100, "output_tokens": 1},
    })
}

/// The content blocks of a step, and why the model stopped after them.
fn content(step: &Step) -> (Vec<Value>, &'static str) {
    match step {
        Step::Say(text) => (vec![json!({"type": "text", "text": text})], "end_turn"),
        Step::Call(calls) => {
            let block = |call: &ToolUse| {
                let id = format!("{ID_PREFIX}{}", call.label);
                json!({"type": "tool_use", "id": id, "name": call.tool, "input": call.input})
            };
            (calls.iter().map(block).collect(), "tool_use")
        }
    }
}

/// A status line and headers, of which `headers` holds those after the first.
pub(crate) fn send_head(mut stream: &TcpStream, status: &str, headers: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nrequest-id: req_test\r\n{headers}\r\n\r\n");
    stream.write_all(head.as_bytes())
}

pub(crate) fn send_json(mut stream: &TcpStream, status: &str, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    let headers = format!("content-type: application/json\r\ncontent-length: {length}");
    send_head(stream, status, &headers)?;
    stream.write_all(body.as_bytes())
}

/// The head of a stream of events, of which each is a chunk of its own.
pub(crate) fn begin_stream(stream: &TcpStream) -> io::Result<()> {
    send_head(
        stream,
        "200 OK",
        "content-type: text/event-stream; charset=utf-8\r\n\
         cache-control: no-cache\r\n\
         transfer-encoding: chunked",
    )
}

/// One event. Its data's `type`, if there is one, is also the event's name.
pub(crate) fn send_event(stream: &TcpStream, data: &Value) -> io::Result<()> {
    let name = data["type"].as_str();
    let name = name.map_or_else(String::new, |name| format!("event: {name}\n"));
    send_chunk(stream, &format!("{name}data: {data}\n\n"))
}

/// An event whose data is no JSON.
pub(crate) fn send_text_event(stream: &TcpStream, text: &str) -> io::Result<()> {
    send_chunk(stream, &format!("data: {text}\n\n"))
}

fn send_chunk(mut stream: &TcpStream, event: &str) -> io::Result<()> {
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    stream.write_all(chunk.as_bytes())
}

/// The end of a stream of events.
pub(crate) fn end_stream(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(b"0\r\n\r\n")
}

fn send_stream(stream: &TcpStream, model: &Value, step: &Step) -> io::Result<()> {
    begin_stream(stream)?;
    let send = |data: Value| send_event(stream, &data);

    let (content, stop_reason) = content(step);
    send(json!({"type": "message_start", "message": message(model)}))?;
    send(json!({"type": "ping"}))?;
    for (index, mut block) in content.into_iter().enumerate() {
        // A block starts empty, and its substance comes in pieces.
        let (empty, substance, delta_type, delta_key) = if block["type"] == "text" {
            let text = block["text"].take();
            let text = text.as_str().unwrap_or_default().to_owned();
            (json!(""), text, "text_delta", "text")
        } else {
            let input = block["input"].take().to_string();
            (json!({}), input, "input_json_delta", "partial_json")
        };
        let key = if delta_key == "text" { "text" } else { "input" };
        block[key] = empty;
        send(json!({"type": "content_block_start", "index": index, "content_block": block}))?;
        let substance: Vec<char> = substance.chars().collect();
        for fragment in substance.chunks(FRAGMENT) {
            let fragment: String = fragment.iter().collect();
            let delta = json!({"type": delta_type, delta_key: fragment});
            send(json!({"type": "content_block_delta", "index": index, "delta": delta}))?;
        }
        send(json!({"type": "content_block_stop", "index": index}))?;
    }
    send(json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason, "stop_sequence": null},
        "usage": {"output_tokens": 20},
    }))?;
    send(json!({"type": "message_stop"}))?;
    end_stream(stream)
}
