//! Compares responses of gateways, and requests that succeed, with what `/openapi.json` says about them.
//!
//! The clients of `support` pass every response on to [`compare`]; [`exchange`] also has the request.
//! `TOLLGATE_OPENAPI_FRAGMENTS=src/api/openapi` reads the description from that folder instead of the program, and
//! `TOLLGATE_OPENAPI_MISMATCHES=file` appends what differs to a file instead of failing.

use std::{
    collections::HashMap,
    env, fs,
    io::Write as _,
    path::Path,
    sync::{LazyLock, Mutex},
};

use reqwest::{Method, RequestBuilder, header::HeaderMap};
use serde_json::Value;
use tollgate::api::openapi::{Api, assemble};

use super::schema::{mismatches, resolve};

/// Most responses of an operation with one status that are compared in a process, and most requests of it.
const MOST: u32 = 200;

/// The description of an API, by operation.
pub struct Described {
    pub document: Value,
}

/// An operation of a description.
pub struct Operation<'a> {
    pub document: &'a Value,
    pub method: Method,
    pub path: &'a str,
    pub described: &'a Value,
}

impl Described {
    pub fn of(api: Api) -> &'static Self {
        static PUBLIC: LazyLock<Described> = LazyLock::new(|| Described::read(Api::Public));
        static OPERATOR: LazyLock<Described> = LazyLock::new(|| Described::read(Api::Operator));
        match api {
            Api::Public => &PUBLIC,
            Api::Operator => &OPERATOR,
        }
    }

    fn read(api: Api) -> Self {
        let document = match env::var("TOLLGATE_OPENAPI_FRAGMENTS") {
            Ok(folder) => from_folder(Path::new(&folder), api),
            Err(_) => api.document(),
        };
        Self { document }
    }

    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        let paths = self.document["paths"].as_object().unwrap();
        paths.iter().flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().iter();
            let methods = methods.filter(|(method, _)| *method != "parameters");
            methods.map(|(method, described)| Operation {
                document: &self.document,
                method: method.to_uppercase().parse().unwrap(),
                path,
                described,
            })
        })
    }

    /// The operation that a request asks for.
    fn operation(&self, method: &Method, path: &str) -> Option<Operation<'_>> {
        // `HEAD` works wherever `GET` does.
        let method = if method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        let mut fitting = self.operations();
        fitting.find(|operation| operation.method == method && fits(operation.path, path))
    }
}

fn from_folder(folder: &Path, api: Api) -> Value {
    let own = match api {
        Api::Public => "public",
        Api::Operator => "operator",
    };
    let mut files = Vec::new();
    for name in [own, "shared"] {
        for file in fs::read_dir(folder.join(name)).unwrap() {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            files.push((path.display().to_string(), text));
        }
    }
    files.sort_by_key(|(name, _)| (!name.ends_with(&format!("{own}/head.json")), name.clone()));
    let files = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    assemble(files).unwrap()
}

/// Whether a path is one of a path with parameters.
fn fits(template: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    let all = template.split('/').all(|wanted| {
        let part = parts.next();
        part.is_some_and(|part| wanted == part || (wanted.starts_with('{') && !part.is_empty()))
    });
    all && parts.next().is_none()
}

/// A response as far as it is described.
pub struct Response<'a> {
    pub status: u16,
    pub headers: &'a HeaderMap,
    pub body: &'a str,
}

/// Sends a request, reads the response and compares it with the description.
pub async fn exchange(request: RequestBuilder) -> (u16, HeaderMap, String) {
    let (client, request) = request.build_split();
    let request = request.unwrap();
    let (method, path) = (request.method().clone(), request.url().path().to_owned());
    let sent = request.try_clone();
    let response = client.execute(request).await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.text().await.unwrap();
    let seen = Response {
        status,
        headers: &headers,
        body: &body,
    };
    compare(&method, &path, &seen);
    let is_accepted = (200..300).contains(&status) && headers.contains_key("x-request-id");
    if let Some(sent) = sent.filter(|_| is_accepted) {
        compare_request(&sent);
    }
    (status, headers, body)
}

/// Reads a stream of one of the billed endpoints to its end and compares it with the description.
pub async fn read_stream(response: reqwest::Response) -> String {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let path = response.url().path().to_owned();
    let body = response.text().await.unwrap();
    let seen = Response {
        status,
        headers: &headers,
        body: &body,
    };
    compare(&Method::POST, &path, &seen);
    body
}

/// Compares a response with the description; panics if they differ. What does not come from a gateway is passed over, and
/// so are routes that a listener does not have, which `openapi.rs` compares.
#[track_caller]
pub fn compare(method: &Method, path: &str, response: &Response<'_>) {
    let is_routed = !response.body.contains("\"route_not_found\"");
    if !is_routed || !response.headers.contains_key("x-request-id") {
        return;
    }
    let Some(api) = api_of(path) else { return };
    let mut found = Vec::new();
    let status = response.status;
    let place = if let Some(operation) = Described::of(api).operation(method, path) {
        let place = format!("{} {} {status}", operation.method, operation.path);
        if is_enough(&place) {
            return;
        }
        operation.compare(method, response, &mut found);
        place
    } else {
        // What is refused before or because of its route.
        if ![400, 401, 408, 426, 429, 431, 503].contains(&status) {
            found.push("is not described".to_owned());
        }
        format!("{method} {path} {status}")
    };
    report(&place, &found);
}

/// Compares a request that has succeeded with the description; panics if they differ.
///
/// Only requests of the operator API are compared: the public one ignores fields and query names that it does not know, and
/// takes values that it drops. `TOLLGATE_OPENAPI_MISMATCHES` has them too.
#[track_caller]
pub fn compare_request(request: &reqwest::Request) {
    let path = request.url().path();
    let is_strict =
        path.starts_with("/operator") || env::var_os("TOLLGATE_OPENAPI_MISMATCHES").is_some();
    let operation = operation_of(request).filter(|_| is_strict);
    if operation.is_some_and(|operation| !is_enough(&place_of(&operation))) {
        compare_each_request(request);
    }
}

/// Compares a request however many were compared before.
#[track_caller]
pub fn compare_each_request(request: &reqwest::Request) {
    let Some(operation) = operation_of(request) else {
        return;
    };
    let mut found = Vec::new();
    let known = operation.query_names();
    for (name, _) in request.url().query_pairs() {
        if !known.contains(&&*name) {
            found.push(format!("the query's `{name}` is not described"));
        }
    }
    let body = request.body();
    let body = body.and_then(|body| serde_json::from_slice(body.as_bytes()?).ok());
    if let Some((schema, body)) = operation.request_schema().zip(body) {
        found.extend(mismatches(operation.document, schema, &body));
    }
    report(&place_of(&operation), &found);
}

fn operation_of(request: &reqwest::Request) -> Option<Operation<'static>> {
    let path = request.url().path();
    Described::of(api_of(path)?).operation(request.method(), path)
}

fn place_of(operation: &Operation<'_>) -> String {
    format!("request of {} {}", operation.method, operation.path)
}

/// The API that a path belongs to; `None` for the portal.
fn api_of(path: &str) -> Option<Api> {
    if path.starts_with("/operator") || path == "/metrics" {
        Some(Api::Operator)
    } else if path.starts_with("/v1/") || path.starts_with("/health") || path == "/openapi.json" {
        Some(Api::Public)
    } else {
        None
    }
}

#[track_caller]
fn report(place: &str, found: &[String]) {
    if found.is_empty() {
        return;
    }
    let lines: Vec<_> = found
        .iter()
        .map(|found| format!("{place}: {found}"))
        .collect();
    let text = lines.join("\n");
    if let Ok(file) = env::var("TOLLGATE_OPENAPI_MISMATCHES") {
        let file = fs::File::options().create(true).append(true).open(file);
        writeln!(file.unwrap(), "{text}").unwrap();
    } else {
        panic!("not as /openapi.json says:\n{text}");
    }
}

/// Counts the responses that were compared.
fn is_enough(place: &str) -> bool {
    static COMPARED: LazyLock<Mutex<HashMap<String, u32>>> = LazyLock::new(Mutex::default);
    let mut compared = COMPARED.lock().unwrap();
    let count = compared.entry(place.to_owned()).or_default();
    *count += 1;
    *count > MOST
}

impl<'a> Operation<'a> {
    /// What a part of the operation says, wherever it is written.
    fn resolved(&self, described: &'a Value) -> &'a Value {
        match described.get("$ref") {
            Some(reference) => resolve(self.document, reference),
            None => described,
        }
    }

    fn query_names(&self) -> Vec<&'a str> {
        let of_path = &self.document["paths"][self.path]["parameters"];
        let all = [of_path, &self.described["parameters"]].into_iter();
        let all = all.filter_map(Value::as_array).flatten();
        let all = all.map(|parameter| self.resolved(parameter));
        all.filter(|parameter| parameter["in"] == "query")
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect()
    }

    /// The schema of the request's body, if it has a body.
    fn request_schema(&self) -> Option<&'a Value> {
        let body = self.resolved(self.described.get("requestBody")?);
        body["content"]["application/json"].get("schema")
    }

    /// Finds described headers that every such response has, and this one lacks.
    fn compare_headers(&self, described: &'a Value, headers: &HeaderMap, found: &mut Vec<String>) {
        let described = described["headers"].as_object().into_iter().flatten();
        let required = described.filter(|(_, header)| self.resolved(header)["required"] == true);
        let missing = required.filter(|(name, _)| !headers.contains_key(name.as_str()));
        found.extend(missing.map(|(name, _)| format!("the header `{name}` is missing")));
    }

    /// What the response has of its own.
    fn compare(&self, method: &Method, response: &Response<'_>, found: &mut Vec<String>) {
        let described = &self.described["responses"][response.status.to_string()];
        let described = self.resolved(described);
        if described.is_null() {
            found.push(format!("the status is not described: {}", response.body));
            return;
        }
        self.compare_headers(described, response.headers, found);
        let content_type = response.headers.get("content-type");
        let content_type = content_type.map_or("", |value| value.to_str().unwrap());
        let media_type = content_type.split(';').next().unwrap();
        let Some(content) = described["content"].get(media_type) else {
            if !(content_type.is_empty() && described.get("content").is_none()) {
                found.push(format!("`{content_type}` is not described"));
            }
            return;
        };
        if method == Method::HEAD {
            return;
        }
        let schema = &content["schema"];
        match media_type {
            "application/json" => match serde_json::from_str(response.body) {
                Ok(body) => found.extend(mismatches(self.document, schema, &body)),
                Err(error) => found.push(format!("not JSON, {error}: {}", response.body)),
            },
            "text/event-stream" => {
                let data = response
                    .body
                    .lines()
                    .filter_map(|line| line.strip_prefix("data: "));
                for data in data.filter(|data| *data != "[DONE]") {
                    // The last event of a stream that breaks off can be incomplete.
                    if let Ok(event) = serde_json::from_str(data) {
                        found.extend(mismatches(self.document, schema, &event));
                    }
                }
            }
            _ => {}
        }
    }
}
