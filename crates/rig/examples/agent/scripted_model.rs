//! A model that follows a script: first it calls a tool, then it repeats what the tool said. It speaks OpenAI's
//! chat completions over HTTP.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;

/// The script, and what was asked of it.
#[derive(Debug, Clone)]
pub struct ScriptedModel {
    url: String,
    tool: String,
    arguments: Value,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl ScriptedModel {
    /// Serves on a free port of this machine until the runtime ends. The first answer calls `tool` with
    /// `arguments`.
    pub async fn start(tool: &str, arguments: Value) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let model = Self {
            url: format!("http://{}/v1", listener.local_addr()?),
            tool: tool.to_owned(),
            arguments,
            requests: Arc::default(),
        };
        tokio::spawn(model.clone().serve(listener));
        Ok(model)
    }

    /// The base address of the API.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All requests so far.
    #[allow(dead_code, reason = "the example does not look, the tests do")]
    pub fn requests(&self) -> Vec<Value> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let model = self.clone();
            let service = service_fn(move |request| {
                let model = model.clone();
                async move { model.answer(request).await }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let known = request.uri().path() == "/v1/chat/completions";
        let body = request.into_body().collect().await?.to_bytes();
        let (status, answer) = match serde_json::from_slice::<Value>(&body) {
            Ok(body) if known => {
                let answer = self.next(&body);
                self.requests
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(body);
                (StatusCode::OK, answer)
            }
            _ => (
                StatusCode::NOT_FOUND,
                json!({"error": {"message": "no such thing"}}),
            ),
        };
        let mut response = Response::new(Full::new(answer.to_string().into()));
        *response.status_mut() = status;
        response.headers_mut().insert(
            hyper::header::CONTENT_TYPE,
            hyper::header::HeaderValue::from_static("application/json"),
        );
        Ok(response)
    }

    /// With a tool's result in the conversation it repeats that; else it calls the tool.
    fn next(&self, request: &Value) -> Value {
        let said = request["messages"]
            .as_array()
            .and_then(|messages| messages.last())
            .filter(|last| last["role"] == "tool")
            .map(|last| text(&last["content"]));
        let (message, reason) = match said {
            Some(said) => (json!({"role": "assistant", "content": said}), "stop"),
            None => (
                json!({"role": "assistant", "content": null, "tool_calls": [{
                    "id": "call-1",
                    "type": "function",
                    "function": {"name": self.tool, "arguments": self.arguments.to_string()},
                }]}),
                "tool_calls",
            ),
        };
        json!({
            "id": "completion-1",
            "object": "chat.completion",
            "created": 0,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        })
    }
}

/// A message's content is text, or parts of text.
pub fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}
