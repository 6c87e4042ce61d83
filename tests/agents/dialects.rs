//! The same stand-in for the APIs of other agents: the Responses API
//! (<https://platform.openai.com/docs/api-reference/responses>), the Chat Completions API
//! (<https://platform.openai.com/docs/api-reference/chat>), and the Gemini API
//! (<https://ai.google.dev/api/generate-content>). Each plays the same kind of script.

use std::io;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::messages_api::{
    Request, Shared, Step, ToolUse, begin_stream, end_stream, send_event, send_json,
    send_text_event,
};

/// Answers an agent that speaks to the Responses API.
pub(crate) fn responses(stream: &TcpStream, request: &Request, shared: &Shared) -> io::Result<()> {
    let Some(body) = asked(request, |path| path.ends_with("/responses")) else {
        return not_found(stream);
    };
    let offered: Vec<&str> = list(&body["tools"])
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let called: Vec<&str> = list(&body["input"])
        .filter(|item| item["type"] == "function_call")
        .filter_map(|item| item["call_id"].as_str())
        .collect();
    let items = match shared.next(&offered, &called) {
        Step::Say(text) => vec![json!({
            "type": "message", "id": "msg_test", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        })],
        Step::Call(calls) => calls.iter().map(function_call).collect(),
    };
    let response = json!({
        "id": "resp_test", "object": "response", "created_at": 0, "status": "completed",
        "model": body["model"], "output": items,
        "usage": {
            "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        },
    });
    if body["stream"] != true {
        return send_json(stream, "200 OK", &response);
    }
    begin_stream(stream)?;
    let mut begun = response.clone();
    begun["status"] = "in_progress".into();
    begun["output"] = json!([]);
    send_event(
        stream,
        &json!({"type": "response.created", "response": begun}),
    )?;
    for (at, item) in items.iter().enumerate() {
        for event in ["added", "done"] {
            let name = format!("response.output_item.{event}");
            let event = json!({"type": name, "output_index": at, "item": item});
            send_event(stream, &event)?;
        }
    }
    send_event(
        stream,
        &json!({"type": "response.completed", "response": response}),
    )?;
    end_stream(stream)
}

fn function_call(call: &ToolUse) -> Value {
    json!({
        "type": "function_call", "id": format!("fc_{}", call.label), "call_id": call.label,
        "name": call.tool, "arguments": call.input.to_string(), "status": "completed",
    })
}

/// Answers an agent that speaks to the Chat Completions API.
pub(crate) fn chat(stream: &TcpStream, request: &Request, shared: &Shared) -> io::Result<()> {
    let Some(body) = asked(request, |path| path.ends_with("/chat/completions")) else {
        return not_found(stream);
    };
    let offered: Vec<&str> = list(&body["tools"])
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    let called: Vec<&str> = list(&body["messages"])
        .flat_map(|message| list(&message["tool_calls"]))
        .filter_map(|call| call["id"].as_str())
        .collect();
    let (message, reason) = match shared.next(&offered, &called) {
        Step::Say(text) => (json!({"role": "assistant", "content": text}), "stop"),
        Step::Call(calls) => {
            let call = |(index, call): (usize, &ToolUse)| {
                json!({
                    "index": index, "id": call.label, "type": "function",
                    "function": {"name": call.tool, "arguments": call.input.to_string()},
                })
            };
            let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
            let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
            (message, "tool_calls")
        }
    };
    said(stream, &body, message, reason)
}

/// Sends what the model says, which ends for this reason, as an answer to `body`.
pub(crate) fn said(
    stream: &TcpStream,
    body: &Value,
    message: Value,
    reason: &str,
) -> io::Result<()> {
    let answer = |object: &str, choices: Value, usage: Value| {
        json!({
            "id": "chatcmpl-test", "object": object, "created": 0, "model": body["model"],
            "choices": choices, "usage": usage,
        })
    };
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    if body["stream"] != true {
        let choice = json!({"index": 0, "message": message, "finish_reason": reason});
        return send_json(
            stream,
            "200 OK",
            &answer("chat.completion", json!([choice]), usage),
        );
    }
    begin_stream(stream)?;
    // As with the real API, only the last chunk has the usage, and it has nothing else.
    for (delta, reason) in [(message, Value::Null), (json!({}), reason.into())] {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
        let chunk = answer("chat.completion.chunk", choices, Value::Null);
        send_event(stream, &chunk)?;
    }
    let last = answer("chat.completion.chunk", json!([]), usage);
    send_event(stream, &last)?;
    send_text_event(stream, "[DONE]")?;
    end_stream(stream)
}

/// Answers an agent that speaks to the Gemini API. Calls have no names of their own there: the first
/// call in a conversation is the script's first, and so on.
pub(crate) fn gemini(stream: &TcpStream, request: &Request, shared: &Shared) -> io::Result<()> {
    let Some(body) = asked(request, |path| path.contains("enerateContent")) else {
        return not_found(stream);
    };
    let offered: Vec<&str> = list(&body["tools"])
        .flat_map(|tool| list(&tool["functionDeclarations"]))
        .filter_map(|function| function["name"].as_str())
        .collect();
    let made = parts(&body).filter(|part| part.get("functionCall").is_some());
    let labels = shared.script.iter().flat_map(|step| match step {
        Step::Call(calls) => calls.as_slice(),
        Step::Say(_) => &[],
    });
    let labels = labels.map(|call| call.label);
    let called: Vec<&str> = labels.take(made.count()).collect();
    let parts: Vec<Value> = match shared.next(&offered, &called) {
        Step::Say(text) => vec![json!({"text": text})],
        Step::Call(calls) => {
            let part =
                |call: &ToolUse| json!({"functionCall": {"name": call.tool, "args": call.input}});
            calls.iter().map(part).collect()
        }
    };
    let answer = json!({
        "candidates": [{
            "content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0,
        }],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "test",
    });
    if !request.path.contains(":stream") {
        return send_json(stream, "200 OK", &answer);
    }
    begin_stream(stream)?;
    send_event(stream, &answer)?;
    end_stream(stream)
}

pub(crate) fn asked(request: &Request, of: fn(&str) -> bool) -> Option<Value> {
    let posted = request.method == "POST" && of(&request.path);
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    (posted && body.is_object()).then_some(body)
}

pub(crate) fn not_found(stream: &TcpStream) -> io::Result<()> {
    let error = json!({"error": {"message": "no such endpoint"}});
    send_json(stream, "404 Not Found", &error)
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Every part of every message of a conversation with the Gemini API.
fn parts(body: &Value) -> impl Iterator<Item = &Value> {
    list(&body["contents"]).flat_map(|content| list(&content["parts"]))
}
