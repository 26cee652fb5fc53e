// A tour of an engine or a gateway with Vercel's AI SDK: node tour_ai_sdk.mjs URL KEY
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embedMany, generateText, Output, streamText, tool } from "ai";
import { z } from "zod";

const [url, key] = process.argv.slice(2);
const settings = { name: "penstock", baseURL: `${url}/v1`, includeUsage: true, supportsStructuredOutputs: true };
const provider = createOpenAICompatible({ ...settings, apiKey: key });
const model = provider("soup");
const prompt = "What is a penstock?";
const short = { model, prompt, maxOutputTokens: 8, temperature: 0, seed: 3, maxRetries: 0 };
const long = { model, prompt, maxOutputTokens: 800, maxRetries: 0 };

const whole = await generateText(short);
const stream = streamText(short);
let text = "";
for await (const piece of stream.textStream) text += piece;
assert.equal(text, whole.text);
assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
console.log("chat, whole and streamed");

const schema = z.object({ mood: z.enum(["calm", "wild"]) });
const formed = await generateText({ ...long, output: Output.object({ schema }) });
assert.ok(["calm", "wild"].includes(formed.output.mood));
console.log("structured output");

const look = tool({
  description: "Looks at something.",
  inputSchema: z.object({ at: z.enum(["sky", "sea"]) }),
  execute: async ({ at }) => `the ${at} is blue`,
});
const called = await generateText({ ...long, tools: { look }, toolChoice: "required" });
assert.ok(called.toolResults.length > 0);
const messages = [{ role: "user", content: prompt }, ...called.response.messages];
await generateText({ ...long, prompt: undefined, messages, tools: { look }, toolChoice: "none", maxOutputTokens: 4 });
console.log("a tool is called and answered");

const streamed = streamText({ ...long, tools: { look }, toolChoice: "required" });
assert.ok((await streamed.toolResults).length > 0);
console.log("a tool is called in a stream");

const embedded = await embedMany({
  model: provider.embeddingModel("soup"), values: ["The engine", "The engine"], maxRetries: 0,
});
assert.deepEqual(embedded.embeddings[0], embedded.embeddings[1]);
console.log("embeddings");

const stop = new AbortController();
const left = streamText({ ...long, abortSignal: stop.signal, onError: () => {} });
for await (const _ of left.textStream) stop.abort();
const refused = (status) => (error) => APICallError.isInstance(error) && error.statusCode === status;
await assert.rejects(generateText({ ...short, model: provider("other") }), refused(404));
const stranger = createOpenAICompatible({ ...settings, apiKey: "wrong" });
await assert.rejects(generateText({ ...short, model: stranger("soup") }), refused(401));
console.log("a stream that is left, and errors of its own");
