// The Vercel AI SDK, through its provider for OpenAI (responses, its default, and chat) and the one
// for compatible services.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, Output, generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';
import { createAccount } from './operator-api.mjs';

const TEXT = 'Hello from the AI SDK!';
const OSLO = '[[sim tool=weather {"city": "Oslo"}]]';
const Recipe = z.object({ name: z.string(), steps: z.array(z.string()).min(2), minutes: z.number() });

globalThis.AI_SDK_LOG_WARNINGS = false; // about settings that one of the providers does not send

const baseURL = process.env.OPENAI_BASE_URL;

const providers = {
  '@ai-sdk/openai': (apiKey) => createOpenAI({ baseURL, apiKey }),
  '@ai-sdk/openai chat': (apiKey) => {
    const openai = createOpenAI({ baseURL, apiKey });
    return (id) => openai.chat(id);
  },
  '@ai-sdk/openai-compatible': (apiKey) => {
    const settings = { name: 'tollgate', baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true };
    return createOpenAICompatible(settings);
  },
};

async function collect(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

for (const [name, connect] of Object.entries(providers)) {
  const { key } = await createAccount();
  const models = connect(key);
  const model = models('svc-native-fast');

  // A tool, and the cities it was called with.
  function weather() {
    const cities = [];
    const execute = async ({ city }) => {
      cities.push(city);
      return { city, sky: 'rain' };
    };
    const description = 'The weather in a city';
    return { cities, tools: { weather: tool({ description, inputSchema: z.object({ city: z.string() }), execute }) } };
  }

  function checkLoop(cities, text, steps) {
    assert.deepEqual(cities, ['Oslo']);
    assert.match(text, /rain/);
    assert.deepEqual(steps.map(({ finishReason }) => finishReason), ['tool-calls', 'stop']);
  }

  describe(name, () => {
    test('generateText', async () => {
      const { text, finishReason, usage } = await generateText({ model, system: 'Be brief.', prompt: TEXT });
      assert.ok(text.endsWith(TEXT));
      assert.equal(finishReason, 'stop');
      assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
    });

    test('generateText with the common settings', async () => {
      const settings = { maxOutputTokens: 128, temperature: 0.3, topP: 0.9, seed: 1, stopSequences: ['x'] };
      const flex = models('svc-flex-beta-3.6');
      const { finishReason, usage } = await generateText({ model: flex, prompt: '[[sim tokens=200]]', ...settings });
      assert.equal(finishReason, 'length');
      assert.equal(usage.outputTokens, 128);
    });

    test('streamText', async () => {
      const plain = await generateText({ model, prompt: TEXT });
      const result = streamText({ model, prompt: TEXT });
      const pieces = await collect(result.textStream);
      assert.ok(pieces.length > 4);
      assert.equal(pieces.join(''), plain.text);
      assert.equal(await result.finishReason, 'stop');
      assert.equal((await result.usage).totalTokens, plain.usage.totalTokens);
    });

    test('a tool loop', async () => {
      const { cities, tools } = weather();
      const { text, steps } = await generateText({ model, tools, prompt: OSLO, stopWhen: isStepCount(5) });
      checkLoop(cities, text, steps);
    });

    test('a streamed tool loop', async () => {
      const { cities, tools } = weather();
      const result = streamText({ model, tools, prompt: OSLO, stopWhen: isStepCount(5) });
      checkLoop(cities, (await collect(result.textStream)).join(''), await result.steps);
    });

    test('a conversation', async () => {
      const { tools } = weather();
      const messages = [{ role: 'user', content: OSLO }];
      const first = await generateText({ model, tools, messages, stopWhen: isStepCount(5) });
      messages.push(...first.responseMessages, { role: 'user', content: 'And tomorrow?' });
      const second = streamText({ model, tools, messages });
      assert.ok((await collect(second.textStream)).join('').endsWith('And tomorrow?'));
      // The second turn's input includes all of the first.
      assert.ok((await second.usage).inputTokens > first.steps.at(-1).usage.inputTokens);
    });

    test("the gateway's own tools are not seen", async () => {
      const prompt = '[[sim tool=convert_units {"amount": "1.5", "from": "ether", "to": "wei"}]]';
      const basic = models('svc-basic');
      const plain = await generateText({ model: basic, prompt });
      assert.match(plain.text, /1500000000000000000/);
      assert.deepEqual([plain.toolCalls, plain.steps.length], [[], 1]);
      const kinds = new Set((await collect(streamText({ model: basic, prompt }).fullStream)).map(({ type }) => type));
      assert.ok(kinds.has('text-delta') && ![...kinds].some((kind) => kind.startsWith('tool')));
    });

    test('a forced tool', async () => {
      const { cities, tools } = weather();
      const { toolCalls } = await generateText({ model, tools, toolChoice: 'required', prompt: 'Hi' });
      assert.deepEqual(toolCalls.map(({ toolName, input }) => [toolName, input.city]), [['weather', cities[0]]]);
    });

    test('structured output', async () => {
      const { output } = await generateText({ model, output: Output.object({ schema: Recipe }), prompt: 'Soup' });
      assert.deepEqual(Recipe.parse(output), output);
    });

    test('streamed structured output', async () => {
      const result = streamText({ model, output: Output.object({ schema: Recipe }), prompt: 'Soup' });
      const partial = await collect(result.partialOutputStream);
      assert.deepEqual(Recipe.parse(await result.output), partial.at(-1));
    });

    test('failures carry the status and the message', async () => {
      const attempt = (settings) => generateText({ model, prompt: 'Hi', maxRetries: 0, ...settings });
      const failsWith = async (promise, statusCode, isRetryable, message) => {
        const error = await promise.then(() => assert.fail('the call succeeded'), (error) => error);
        assert.ok(APICallError.isInstance(error), String(error));
        assert.deepEqual([error.statusCode, error.isRetryable], [statusCode, isRetryable]);
        assert.match(error.message, message);
        return error;
      };
      await failsWith(attempt({ model: connect('sk-wrong')('svc-native-fast') }), 401, false, /key/i);
      await failsWith(attempt({ model: models('svc-unknown') }), 404, false, /svc-unknown/);
      await failsWith(attempt({ model: models('svc-flex-beta-3.6'), maxOutputTokens: 5 }), 400, false, /128/);
      const { data } = await failsWith(attempt({ prompt: '[[sim status=529]]' }), 502, true, /provider/);
      assert.equal(data.error.code, '529');
    });

    test('an interrupted stream', async () => {
      const errors = [];
      const onError = ({ error }) => errors.push(error);
      const result = streamText({ model, prompt: '[[sim drop_after=3]]', maxRetries: 0, onError });
      const parts = await collect(result.fullStream);
      assert.equal(parts.filter(({ type }) => type === 'text-delta').length, 3);
      assert.equal(errors.length, 1);
      assert.equal(errors[0].code, 'stream_interrupted');
      assert.equal(errors[0].type, 'upstream_stream_error');
    });
  });
}

test('responses of earlier turns are named, not repeated, unless they are not stored', async () => {
  const { key } = await createAccount();
  const bodies = [];
  const watched = (url, init) => {
    bodies.push(JSON.parse(init.body));
    return fetch(url, init);
  };
  const model = createOpenAI({ baseURL, apiKey: key, fetch: watched })('svc-native-fast');
  const inputTokens = [];
  for (const store of [true, false]) {
    const providerOptions = { openai: { store } };
    const messages = [{ role: 'user', content: 'one' }];
    const first = await generateText({ model, messages, providerOptions });
    messages.push(...first.responseMessages, { role: 'user', content: 'two' });
    const second = await generateText({ model, messages, providerOptions });
    assert.ok(second.text.endsWith('two'));
    assert.equal(bodies.at(-1).input[1].type === 'item_reference', store);
    inputTokens.push(second.usage.inputTokens);
  }
  assert.equal(inputTokens[0], inputTokens[1]);
});
