// Requests of the API. Errors are problems: {status, detail, argument}.

const base = "/api/v1/";

function headers() {
  const token = sessionStorage.getItem("token");
  return token ? {Authorization: `Bearer ${token}`} : {};
}

async function checked(response) {
  if (!response.ok) throw await response.json();
  return response;
}

async function send(path, body, further = {}) {
  const sent = {...headers(), "Content-Type": "application/json", ...further};
  return checked(await fetch(base + path, {method: "POST", headers: sent, body: JSON.stringify(body)}));
}

export async function get(path) {
  return (await checked(await fetch(base + path, {headers: headers()}))).json();
}

export async function post(path, body) {
  return (await send(path, body)).json();
}

// The answer as a file: its content and its name.
export async function download(path, body) {
  const response = await send(path, body);
  const [, name] = /filename="([^"]*)"/.exec(response.headers.get("Content-Disposition") || "") || [];
  return {content: await response.blob(), name: name || "gaflow"};
}

// Starts work of a model, and reports its progress until it ends; `started` gets a function that stops it.
export async function work(path, body, {progress = () => {}, started = () => {}} = {}) {
  const {id} = await (await send(path, body, {Prefer: "respond-async"})).json();
  started(() => fetch(`${base}work/${id}`, {method: "DELETE", headers: headers()}));
  const response = await checked(await fetch(`${base}work/${id}/events`, {headers: headers()}));
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
