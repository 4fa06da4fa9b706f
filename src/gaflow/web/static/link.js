// The state of the page as a link: everything lies in the fragment of the address, which browsers never send.
//
// A fragment is page=NAME and the values of that page. Values are strings; empty ones are left out. `remember` changes
// the address in place, `visit` adds to the history, so that the browser's Back button undoes it.

export const PAGES = ["explain", "flow", "compare", "data", "about"];

export function readLink() {
  const values = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  if (values.token) {
    sessionStorage.setItem("token", values.token);
    delete values.token;
    history.replaceState(null, "", fragment(values.page, values));
  }
  const page = PAGES.includes(values.page) ? values.page : "explain";
  delete values.page;
  return {page, values};
}

export function fragment(page, values) {
  const parameters = new URLSearchParams({page: page || "explain"});
  for (const [name, value] of Object.entries(values)) {
    if (name !== "page" && value !== "" && value !== null && value !== undefined) parameters.set(name, value);
  }
  return "#" + parameters;
}

export function remember(page, values) {
  const address = fragment(page, values);
  if (address !== location.hash) history.replaceState(null, "", address);
  document.dispatchEvent(new Event("remembered"));
}

// Values that hold lists or records are JSON; one that was damaged on the way counts as missing.
export function parsed(text, otherwise) {
  try {
    return text ? JSON.parse(text) : otherwise;
  } catch {
    return otherwise;
  }
}
