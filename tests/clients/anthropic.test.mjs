// Anthropic's official Node library.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { z } from 'zod';
import { closeAccount, createAccount, setLimit } from './operator-api.mjs';

const MODEL = 'svc-native-fast';
const TEXT = 'Hello from Node!';
const OSLO = '[[sim tool=weather {"city": "Oslo"}]]';
const WEATHER = {
  name: 'weather',
  description: 'The weather in a city.',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

// Anthropic's clients append `/v1` themselves.
const baseURL = process.env.OPENAI_BASE_URL.replace(/\/v1$/, '');
const account = await createAccount();
const client = clientFor(account.key);

function clientFor(apiKey, more = {}) {
  return new Anthropic({ apiKey, baseURL, maxRetries: 0, timeout: 30_000, ...more });
}

function ask(content = TEXT, more = {}) {
  return { model: MODEL, max_tokens: 1_000, messages: [{ role: 'user', content }], ...more };
}

async function collect(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

// A client with the default retries, and a count of its requests.
function counted() {
  const count = { requests: 0 };
  const counting = (...args) => {
    count.requests += 1;
    return fetch(...args);
  };
  return [clientFor(account.key, { maxRetries: 2, fetch: counting }), count];
}

describe('answers', () => {
  test('plain', async () => {
    const message = await client.messages.create(ask());
    assert.equal(message.model, MODEL);
    assert.equal(message.stop_reason, 'end_turn');
    assert.ok(message.content[0].text.endsWith(TEXT));
    assert.ok(message.usage.input_tokens > 0 && message.usage.output_tokens > 0);
    assert.ok(message._request_id);
  });

  test('a key as a bearer token', async () => {
    const bearer = new Anthropic({ authToken: account.key, apiKey: null, baseURL });
    assert.ok((await bearer.messages.create(ask())).content[0].text.endsWith(TEXT));
  });

  test('streamed', async () => {
    const plain = await client.messages.create(ask());
    const stream = client.messages.stream(ask());
    let text = '';
    stream.on('text', (delta) => (text += delta));
    const message = await stream.finalMessage();
    assert.equal(text, plain.content[0].text);
    assert.deepEqual(message.content, plain.content);
    assert.deepEqual(message.usage, plain.usage);
  });

  test('counting and models', async () => {
    const { max_tokens: _, ...request } = ask();
    assert.ok((await client.messages.countTokens(request)).input_tokens > 0);
    const ids = (await collect(client.models.list({ limit: 5 }))).map(({ id }) => id);
    assert.equal(new Set(ids).size, 17);
    assert.equal((await client.models.retrieve('claude-opus-5-5')).id, 'claude-opus-5-5');
  });
});

describe('tools', () => {
  for (const streamed of [false, true]) {
    test(`a call and its result${streamed ? ', streamed' : ''}`, async () => {
      const create = (request) => {
        return streamed ? client.messages.stream(request).finalMessage() : client.messages.create(request);
      };
      const request = ask(OSLO, { tools: [WEATHER] });
      const { content, stop_reason } = await create(request);
      assert.equal(stop_reason, 'tool_use');
      const [{ id, name, input }] = content;
      assert.deepEqual([name, input], ['weather', { city: 'Oslo' }]);
      const result = { type: 'tool_result', tool_use_id: id, content: 'Rain in Oslo' };
      const turns = [{ role: 'assistant', content }, { role: 'user', content: [result] }];
      const answer = await create({ ...request, messages: [...request.messages, ...turns] });
      assert.match(answer.content[0].text, /Rain in Oslo/);
    });

    test(`the tool runner goes on without threads${streamed ? ', streamed' : ''}`, async () => {
      const [counting, count] = counted();
      const weather = betaZodTool({
        name: 'weather',
        description: 'The weather in a city.',
        inputSchema: z.object({ city: z.string() }),
        run: ({ city }) => `Rain in ${city}`,
      });
      const runner = counting.beta.messages.toolRunner({ ...ask(OSLO), tools: [weather], stream: streamed });
      let last;
      for await (const step of runner) last = streamed ? await step.finalMessage() : step;
      assert.match(last.content[0].text, /Rain in Oslo/);
      // The runner asks for a thread first; refused, it sends the whole conversation each time.
      assert.equal(count.requests, 3);
    });
  }
});

describe('failures', () => {
  // The error that `promise` is rejected with: exactly of this class, with these fields and a request ID.
  async function failure(promise, kind, expected) {
    const error = await promise.then(() => assert.fail('the call succeeded'), (error) => error);
    assert.equal(error.constructor, kind, String(error));
    const { type, message, details } = error.error.error;
    assert.deepEqual([error.status, type, details.error_code], expected);
    assert.ok(message && error.requestID === error.error.request_id);
    return error;
  }

  test('keys, credit, models and limits', async () => {
    const [counting, count] = counted();
    const wrong = counting.withOptions({ apiKey: 'sk-wrong' }).messages.create(ask());
    await failure(wrong, Anthropic.AuthenticationError, [401, 'authentication_error', 'invalid_api_key']);
    assert.equal(count.requests, 1);
    const closed = await createAccount();
    await closeAccount(closed);
    const unpaid = clientFor(closed.key).messages.create(ask());
    await failure(unpaid, Anthropic.APIError, [402, 'billing_error', 'no_account']);
    const unknown = client.messages.create(ask('Hi', { model: 'svc-unknown' }));
    await failure(unknown, Anthropic.NotFoundError, [404, 'not_found_error', 'model_not_found']);
    const limited = await createAccount();
    await setLimit(limited, MODEL, { rpm: 1 });
    await clientFor(limited.key).messages.create(ask());
    const second = clientFor(limited.key).messages.create(ask());
    const { headers } = await failure(second, Anthropic.RateLimitError, [429, 'rate_limit_error', 'rpm_exceeded']);
    assert.ok(Number(headers.get('retry-after')) >= 1);
  });

  test('a provider that fails, and one that refuses', async () => {
    const overloaded = client.messages.create(ask('[[sim status=529]]'));
    await failure(overloaded, Anthropic.OverloadedError, [529, 'overloaded_error', 'upstream_error']);
    const [counting, count] = counted();
    const refused = counting.messages.create(ask('[[sim status=400]]'));
    await failure(refused, Anthropic.BadRequestError, [400, 'invalid_request_error', 'upstream_error']);
    assert.equal(count.requests, 1);
  });

  test('an interrupted stream', async () => {
    const received = [];
    const interrupted = async () => {
      for await (const event of await client.messages.create(ask('[[sim drop_after=3]]', { stream: true }))) {
        if (event.type === 'content_block_delta') received.push(event.delta.text);
      }
    };
    const error = await interrupted().then(() => assert.fail('the stream ended'), (error) => error);
    assert.ok(error instanceof Anthropic.APIError);
    assert.equal(error.error.error.details.error_code, 'stream_interrupted');
    assert.equal(received.length, 3);
  });
});
