// A world of one's own: drop the JSON of docs/worlds.md on the page.

/** @typedef {import("./app.js").App} App */

/** @param {App} app */
export function acceptGraphs(app) {
  if (app.task.kind !== "graph") return;
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) await enterGraph(app, await file.text());
  });
}

/** @param {App} app @param {string} text */
export async function enterGraph(app, text) {
  try {
    app.begin(await app.engine.ask("graph", { world: text }));
    await app.update();
  } catch (error) {
    app.trouble(error instanceof Error ? error.message : String(error));
  }
}
