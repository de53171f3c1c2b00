// Streams of tokens through graphs, as JSON: [{graph, tokens, settings}] on a file -> what every step answered.
import { readFileSync, writeFileSync } from "node:fs";
import { StepGraph } from "../../../src/mapformers/explorer/page/step_graph.js";

const [from, to] = process.argv.slice(2);
const plain = (tensor) => ({ shape: tensor.shape, data: [...tensor.data] });
const answers = JSON.parse(readFileSync(from, "utf8")).map(({ graph, tokens, settings }) => {
  const model = new StepGraph(graph);
  let state = model.emptyState();
  const empty = Object.fromEntries(Object.entries(state).map(([name, tensor]) => [name, plain(tensor)]));
  const steps = tokens.map((token, i) => {
    const { logits, state: next, observed } = model.step(token, state, settings?.[i]);
    state = next;
    return { logits: [...logits], observed: Object.fromEntries(Object.entries(observed).map(([k, v]) => [k, plain(v)])) };
  });
  return { empty, steps };
});
writeFileSync(to, JSON.stringify(answers));
