// A tour of the engine with OpenAI's client for Node: node tour.mjs URL KEY
import assert from "node:assert/strict";
import OpenAI from "openai";

const [url, key] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const messages = [{ role: "user", content: "What is a penstock?" }];
const chat = { model: "soup", messages, max_tokens: 8, seed: 3 };
const parameters = {
  type: "object",
  properties: { at: { enum: ["sky", "sea"] } },
  required: ["at"],
  additionalProperties: false,
};
const tool = { type: "function", function: { name: "look", parameters } };

const models = await client.models.list();
assert.equal(models.data[0].id, "soup");
console.log("models");

const whole = await client.chat.completions.create(chat);
let text = "";
let usage = null;
const options = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create({ ...chat, ...options })) {
  text += chunk.choices[0]?.delta.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].message.content);
assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
console.log("chat, whole and streamed");

const several = await client.chat.completions.create({ ...chat, n: 2, logprobs: true, top_logprobs: 2 });
assert.equal(several.choices.length, 2);
assert.equal(several.choices[0].logprobs.content[0].top_logprobs.length, 2);
console.log("several choices with log-probabilities");

const schema = { name: "mood", strict: true, schema: parameters };
const formed = await client.chat.completions.create({
  ...chat, max_tokens: 800, response_format: { type: "json_schema", json_schema: schema },
});
assert.ok(["sky", "sea"].includes(JSON.parse(formed.choices[0].message.content).at));
console.log("structured output");

const called = await client.chat.completions.create({
  ...chat, max_tokens: 800, tools: [tool], tool_choice: "required", parallel_tool_calls: false,
});
const [call] = called.choices[0].message.tool_calls;
assert.ok(["sky", "sea"].includes(JSON.parse(call.function.arguments).at));
const result = { role: "tool", tool_call_id: call.id, content: "blue" };
await client.chat.completions.create({
  ...chat, tools: [tool], messages: [...messages, called.choices[0].message, result],
});
const runner = client.chat.completions.stream({
  ...chat, max_tokens: 800, tools: [tool], tool_choice: "required", parallel_tool_calls: false,
});
const final = await runner.finalChatCompletion();
assert.ok(final.choices[0].message.tool_calls.length > 0);
console.log("a tool is called, answered, and called in a stream");

const completed = await client.completions.create({
  model: "soup", prompt: "The engine", max_tokens: 4, echo: true,
});
assert.ok(completed.choices[0].text.startsWith("The engine"));
console.log("completion of a text");

const asked = { model: "soup", input: "What?", max_output_tokens: 4, temperature: 0 };
const answered = await client.responses.create(asked);
let said = "";
for await (const event of await client.responses.create({ ...asked, stream: true })) {
  if (event.type === "response.output_text.delta") said += event.delta;
}
assert.equal(said, answered.output_text);
console.log("the Responses API, whole and streamed");

const leaving = await client.chat.completions.create({ ...chat, max_tokens: 500, stream: true });
for await (const _ of leaving) break; // leaves the stream
await assert.rejects(client.chat.completions.create({ ...chat, model: "other" }), OpenAI.NotFoundError);
await assert.rejects(client.chat.completions.create({ ...chat, n: 0 }), OpenAI.BadRequestError);
const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
console.log("a stream that is left, and errors of its own");
