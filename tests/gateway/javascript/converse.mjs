// The unmodified JavaScript SDK holds a conversation: node converse.mjs <url> <token> <scenario>
// Prints one JSON object with what it saw; tests/gateway/test_javascript_sdk.py judges it.
import { Client } from "@langchain/langgraph-sdk";
import WebSocket from "ws";

const [url, token, scenario] = process.argv.slice(2);
const sockets = [];
// Node 20 has no global WebSocket, and a browser's cannot set headers: the token goes into the query.
const webSocketFactory = (address) => {
  const socket = new WebSocket(`${address}?token=${encodeURIComponent(token)}`);
  sockets.push(socket);
  return socket;
};
const client = new Client({ apiUrl: url, apiKey: null });
const said = (text) => ({ messages: [{ role: "user", content: text }] });
const open = (threadId, assistantId) =>
  client.threads.stream(threadId, { assistantId, transport: "websocket", webSocketFactory });

async function textsOf(thread) {
  const texts = [];
  for await (const message of thread.messages) {
    const tokens = [];
    for await (const token of message.text) tokens.push(token);
    texts.push(tokens);
  }
  return texts;
}

const contentOf = (state) => state.messages.map((message) => message.text ?? message.content);

const scenarios = {
  async turns() {
    const turns = [];
    for (const text of ["hello 3", "again 2"]) {
      const thread = open("js-turns", "slow");
      const messages = textsOf(thread);
      await thread.run.start({ input: said(text) });
      const output = await thread.output;
      turns.push({ tokens: await messages, output: contentOf(output) });
      await thread.close();
    }
    return turns;
  },

  async quick() {
    // The run has ended before the SDK subscribes: it does so only once run.start has been answered.
    const thread = open("js-quick", "chat");
    await thread.run.start({ input: said("quick 1") });
    const output = contentOf(await thread.output);
    await thread.close();
    return output;
  },

  async interrupt() {
    const thread = open("js-interrupt", "approval");
    await thread.run.start({ input: said("do it") });
    while (thread.interrupts.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    const [asked] = thread.interrupts;
    await thread.input.respond({ namespace: asked.namespace, interrupt_id: asked.interruptId, response: "yes" });
    // `thread.output` has ended with the interrupt, and a subscription may end with its replay: the SDK takes it for an end.
    let output = [];
    while (output.length < 2) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      output = contentOf((await thread.state.get({ namespace: [] })).values);
    }
    await thread.close();
    return { asked: asked.payload, output };
  },

  async reconnect() {
    const thread = open("js-reconnect", "gated"); // whose answer goes on once we have come back
    const seen = [];
    const finished = (async () => {
      for await (const message of thread.messages) for await (const token of message.text) seen.push(token);
    })();
    await thread.run.start({ input: said("hello 60") });
    while (seen.length < 5) await new Promise((resolve) => setTimeout(resolve, 10));
    sockets.at(-1).terminate();
    const output = contentOf(await thread.output);
    await finished;
    await thread.close();
    return { sockets: sockets.length, text: seen.join(""), output };
  },

  async refused() {
    const thread = open("js-refused", "slow");
    try {
      await thread.run.start({ input: said("hello") });
    } catch (error) {
      // Long enough for the first two attempts to reconnect, if it made any.
      await new Promise((resolve) => setTimeout(resolve, 1500));
      return { message: String(error.message), sockets: sockets.length };
    } finally {
      await thread.close();
    }
  },
};

const result = await scenarios[scenario]();
console.log(JSON.stringify(result));
process.exit(0);
