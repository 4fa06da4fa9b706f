// Requests of the API. Errors are problems: {status, detail, argument}.

const base = "/api/v1/";

function headers() {
  const token = sessionStorage.getItem("token");
  return token ? {Authorization: `Bearer ${token}`} : {};
}

async function read(response) {
  if (response.status === 204) return null;
  const content = await response.json();
  if (!response.ok) throw content;
  return content;
}

export async function get(path) {
  return read(await fetch(base + path, {headers: headers()}));
}

export async function post(path, body) {
  const sent = {...headers(), "Content-Type": "application/json"};
  return read(await fetch(base + path, {method: "POST", headers: sent, body: JSON.stringify(body)}));
}

// Starts work of a model, and reports its progress until it ends; `started` gets a function that stops it.
export async function work(path, body, {progress, started}) {
  const sent = {...headers(), "Content-Type": "application/json", Prefer: "respond-async"};
  const {id} = await read(await fetch(base + path, {method: "POST", headers: sent, body: JSON.stringify(body)}));
  started(() => fetch(`${base}work/${id}`, {method: "DELETE", headers: headers()}));
  const response = await fetch(`${base}work/${id}/events`, {headers: headers()});
  if (!response.ok) throw await response.json();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) throw {status: 0, detail: "the server ended the connection"};
    rest += value;
    const messages = rest.split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const status = JSON.parse(message.slice("data: ".length));
      progress(status.progress);
      if (status.problem) throw status.problem;
      if (status.answer) return status.answer;
    }
  }
}
