// Streams of tokens through graphs: [{graph, tokens, settings}] as JSON on stdin -> what every step answered, on stdout.
import { readFileSync } from "node:fs";
import { StepGraph } from "../../../src/mapformers/explorer/page/step_graph.js";

const plain = (tensor) => ({ shape: tensor.shape, data: [...tensor.data] });
const plainly = (tensors) => Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, plain(tensor)]));

const answers = JSON.parse(readFileSync(0, "utf8")).map(({ graph, tokens, settings }) => {
  const model = new StepGraph(graph);
  let state = model.emptyState();
  const empty = plainly(state);
  const steps = tokens.map((token, i) => {
    const before = JSON.stringify(plainly(state));
    const answer = model.step(token, state, settings[i]);
    if (JSON.stringify(plainly(state)) !== before) throw new Error("A step changed the state that it was given.");
    state = answer.state;
    return { logits: [...answer.logits], observed: plainly(answer.observed) };
  });
  return { empty, steps };
});
process.stdout.write(JSON.stringify(answers));
