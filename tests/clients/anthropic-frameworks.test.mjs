// The Anthropic classes of the Vercel AI SDK and of LangChain.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { ChatAnthropic } from '@langchain/anthropic';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { APICallError, Output, generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';
import { createAccount } from './operator-api.mjs';

const TEXT = 'Hello from a framework!';
const OSLO = '[[sim tool=weather {"city": "Oslo"}]]';
const City = z.object({ city: z.string() });

globalThis.AI_SDK_LOG_WARNINGS = false; // about settings that are not sent

const origin = process.env.OPENAI_BASE_URL.replace(/\/v1$/, '');
const { key } = await createAccount();

async function collect(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

describe('@ai-sdk/anthropic', () => {
  const models = createAnthropic({ baseURL: `${origin}/v1`, apiKey: key });
  const model = models('svc-native-fast');
  const weather = tool({ inputSchema: City, execute: async ({ city }) => ({ city, sky: 'rain' }) });
  const withTools = { model, tools: { weather }, prompt: OSLO, stopWhen: isStepCount(5) };

  test('text, whole and streamed', async () => {
    const plain = await generateText({ model, system: 'Be brief.', prompt: TEXT });
    assert.ok(plain.text.endsWith(TEXT));
    assert.equal(plain.finishReason, 'stop');
    const streamed = streamText({ model, system: 'Be brief.', prompt: TEXT });
    assert.equal((await collect(streamed.textStream)).join(''), plain.text);
    const { inputTokens, outputTokens } = await streamed.usage;
    assert.deepEqual([inputTokens, outputTokens], [plain.usage.inputTokens, plain.usage.outputTokens]);
    assert.ok(inputTokens > 0 && outputTokens > 0);
  });

  test('a tool loop, whole and streamed', async () => {
    const plain = await generateText(withTools);
    const streamed = streamText(withTools);
    const text = (await collect(streamed.textStream)).join('');
    for (const [last, steps] of [[plain.text, plain.steps], [text, await streamed.steps]]) {
      assert.match(last, /rain/);
      assert.deepEqual(steps.map(({ finishReason }) => finishReason), ['tool-calls', 'stop']);
    }
  });

  test('structured output', async () => {
    const { output } = await generateText({ model, output: Output.object({ schema: City }), prompt: 'Where?' });
    assert.deepEqual(City.parse(output), output);
  });

  test('failures', async () => {
    const failsWith = async (settings, statusCode, isRetryable) => {
      const call = generateText({ model, prompt: 'Hi', maxRetries: 0, ...settings });
      const error = await call.then(() => assert.fail('the call succeeded'), (error) => error);
      assert.ok(APICallError.isInstance(error), String(error));
      assert.deepEqual([error.statusCode, error.isRetryable], [statusCode, isRetryable]);
    };
    const wrong = createAnthropic({ baseURL: `${origin}/v1`, apiKey: 'sk-wrong' });
    await failsWith({ model: wrong('svc-native-fast') }, 401, false);
    await failsWith({ model: models('svc-unknown') }, 404, false);
    await failsWith({ prompt: '[[sim status=529]]' }, 529, true);
    const errors = [];
    const onError = ({ error }) => errors.push(error);
    const broken = streamText({ model, prompt: '[[sim drop_after=3]]', maxRetries: 0, onError });
    const parts = await collect(broken.fullStream);
    assert.equal(parts.filter(({ type }) => type === 'text-delta').length, 3);
    assert.equal(errors.length, 1);
  });
});

describe('@langchain/anthropic', () => {
  const connect = (more = {}) => {
    return new ChatAnthropic({ model: 'svc-native-fast', apiKey: key, anthropicApiUrl: origin, maxRetries: 0, ...more });
  };
  const chat = connect();

  test('text, whole and streamed', async () => {
    const plain = await chat.invoke(TEXT);
    assert.ok(plain.text.endsWith(TEXT));
    const chunks = await collect(await chat.stream(TEXT));
    const whole = chunks.reduce((sum, chunk) => sum.concat(chunk));
    assert.equal(whole.text, plain.text);
    assert.equal(whole.usage_metadata.output_tokens, plain.usage_metadata.output_tokens);
    assert.ok(whole.usage_metadata.input_tokens > 0);
  });

  test('a tool and its result', async () => {
    const description = 'The weather in a city.';
    const withTools = chat.bindTools([{ name: 'weather', description, input_schema: z.toJSONSchema(City) }]);
    const question = new HumanMessage(OSLO);
    const called = await withTools.invoke([question]);
    const [{ id, name, args }] = called.tool_calls;
    assert.deepEqual([name, args], ['weather', { city: 'Oslo' }]);
    const result = new ToolMessage({ tool_call_id: id, content: 'Rain in Oslo' });
    assert.match((await withTools.invoke([question, called, result])).text, /Rain in Oslo/);
  });

  test('failures', async () => {
    await assert.rejects(connect({ apiKey: 'sk-wrong' }).invoke('Hi'), { status: 401 });
    await assert.rejects(connect({ model: 'svc-unknown' }).invoke('Hi'), { status: 404 });
    await assert.rejects(async () => collect(await chat.stream('[[sim drop_after=3]]')), /broke off/);
  });
});
