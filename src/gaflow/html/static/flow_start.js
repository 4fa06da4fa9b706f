mountFlow(document.querySelector("main"), JSON.parse(document.getElementById("flow-data").textContent));
