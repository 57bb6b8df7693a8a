// The official Node library.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { closeAccount, createAccount } from './operator-api.mjs';

const MODEL = 'svc-native-fast';
const TEXT = 'Hello from Node!';
const HELLO = ask(TEXT);
const OSLO = '[[sim tool=get_weather {"city": "Oslo"}]]';
const UTC = '[[sim tool=get_time {"zone": "UTC"}]]';
const Weather = z.object({ city: z.string() });
const Time = z.object({ zone: z.string() });
const TOOLS = [
  zodFunction({ name: 'get_weather', parameters: Weather }),
  zodFunction({ name: 'get_time', parameters: Time }),
];
const Person = z.object({ name: z.string(), age: z.number().int(), mood: z.enum(['glad', 'sad']) });

const account = await createAccount();
const client = clientFor(account.key);
const chat = client.chat.completions;

function clientFor(apiKey, more = {}) {
  return new OpenAI({ apiKey, maxRetries: 0, timeout: 30_000, ...more });
}

function ask(content, more = {}) {
  return { model: MODEL, messages: [{ role: 'user', content }], ...more };
}

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const named = (calls) => calls.map(({ function: { name, arguments: text } }) => [name, JSON.parse(text)]);

describe('answers', () => {
  test('the settings in dev.env are all a client needs', async () => {
    const answer = await new OpenAI().chat.completions.create(HELLO);
    assert.ok(answer.choices[0].message.content.endsWith(TEXT));
  });

  test('plain', async () => {
    const answer = await chat.create(HELLO);
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.model, MODEL);
    assert.equal(answer.choices[0].finish_reason, 'stop');
    assert.ok(answer.choices[0].message.content.includes('simulator'));
    assert.ok(answer.choices[0].message.content.endsWith(TEXT));
    const { prompt_tokens, completion_tokens, total_tokens } = answer.usage;
    assert.ok(prompt_tokens > 0 && completion_tokens > 0);
    assert.equal(total_tokens, prompt_tokens + completion_tokens);
  });

  test('request IDs', async () => {
    assert.ok((await chat.create(HELLO))._request_id);
    const options = { headers: { 'X-Request-ID': 'mine-2' } };
    const { data, request_id } = await chat.create(HELLO, options).withResponse();
    assert.equal(request_id, 'mine-2');
    assert.equal(data._request_id, 'mine-2');
  });

  test('models', async () => {
    const models = await collect(client.models.list());
    assert.equal(new Set(models.map(({ id }) => id)).size, 17);
    const flex = await client.models.retrieve('svc-flex-beta-3.6');
    assert.equal(flex.id, 'svc-flex-beta-3.6');
    assert.equal(flex.max_output_length, 66_000);
  });
});

describe('streams', () => {
  test('content adds up and the usage comes last', async () => {
    const plain = await chat.create(HELLO);
    const stream = await chat.create({ ...HELLO, stream: true, stream_options: { include_usage: true } });
    const chunks = await collect(stream);
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    assert.deepEqual(last.usage, plain.usage);
    assert.equal(new Set(chunks.map(({ id, model }) => `${id} ${model}`)).size, 1);
    const text = chunks.map(({ choices: [{ delta }] }) => delta.content ?? '').join('');
    assert.equal(text, plain.choices[0].message.content);
    const reasons = chunks.map(({ choices: [choice] }) => choice.finish_reason);
    assert.equal(reasons.pop(), 'stop');
    assert.ok(reasons.length > 4 && reasons.every((reason) => reason === null));
  });

  test('without usage every chunk has a choice', async () => {
    const chunks = await collect(await chat.create({ ...HELLO, stream: true }));
    assert.ok(chunks.every(({ choices }) => choices.length === 1));
  });

  test('the helper', async () => {
    const plain = await chat.create(HELLO);
    const stream = chat.stream({ ...HELLO, stream_options: { include_usage: true } });
    let text = '';
    stream.on('content', (delta) => (text += delta));
    const final = await stream.finalChatCompletion();
    assert.equal(text, plain.choices[0].message.content);
    assert.equal(final.choices[0].message.content, text);
    // The helper sums the fields that it knows; the cost is in the last chunk.
    const { cost, ...counts } = plain.usage;
    assert.match(cost, /^0\.\d{6,9}$/);
    assert.deepEqual(await stream.totalUsage(), counts);
  });

  test('a stream left early leaves the client usable', async () => {
    for await (const _ of await chat.create(ask('[[sim tokens=100 delay_ms=20]]', { stream: true }))) break;
    assert.equal((await chat.create(HELLO)).choices[0].finish_reason, 'stop');
  });
});

describe('tools', () => {
  const both = [['get_weather', { city: 'Oslo' }], ['get_time', { zone: 'UTC' }]];
  const question = ask(`${OSLO} ${UTC}`, { tools: TOOLS });

  function withResults(message) {
    const results = message.tool_calls.map(({ id, function: { name } }) => {
      return { role: 'tool', tool_call_id: id, content: `${name} worked` };
    });
    return { ...question, messages: [...question.messages, message, ...results] };
  }

  async function checkRoundTrip({ message, finish_reason }) {
    assert.equal(finish_reason, 'tool_calls');
    assert.deepEqual(named(message.tool_calls), both);
    const answer = await chat.create(withResults(message));
    assert.equal(answer.choices[0].finish_reason, 'stop');
    assert.match(answer.choices[0].message.content, /get_weather worked.*get_time worked/);
  }

  test('parallel calls and their results', async () => {
    const { choices } = await chat.create(question);
    assert.equal(choices[0].message.content, null);
    await checkRoundTrip(choices[0]);
  });

  test('streamed through the helper', async () => {
    const final = await chat.stream(question).finalChatCompletion();
    await checkRoundTrip(final.choices[0]);
  });

  test('tool_choice', async () => {
    const choose = async (tool_choice) => (await chat.create(ask('Hi', { tools: TOOLS, tool_choice }))).choices[0];
    const [[name, args]] = named((await choose('required')).message.tool_calls);
    assert.equal(name, 'get_weather');
    Weather.parse(args);
    const time = await choose({ type: 'function', function: { name: 'get_time' } });
    assert.equal(time.message.tool_calls[0].function.name, 'get_time');
    assert.equal((await choose('none')).finish_reason, 'stop');
  });

  for (const stream of [false, true]) {
    test(`runTools ${stream ? 'streaming' : 'plain'}`, async () => {
      const cities = [];
      const tool = zodFunction({
        name: 'get_weather',
        description: 'The weather in a city',
        parameters: Weather,
        function: ({ city }) => {
          cities.push(city);
          return `Rain in ${city}`;
        },
      });
      const runner = chat.runTools({ ...ask(OSLO), stream, tools: [tool] });
      assert.match(await runner.finalContent(), /Rain in Oslo/);
      assert.deepEqual(cities, ['Oslo']);
      assert.deepEqual(runner.messages.map(({ role }) => role), ['user', 'assistant', 'tool', 'assistant']);
    });
  }
});

describe('structured output', () => {
  const response_format = zodResponseFormat(Person, 'person');

  test('parse', async () => {
    const { message } = (await chat.parse(ask('Who?', { response_format }))).choices[0];
    assert.deepEqual(message.parsed, Person.parse(JSON.parse(message.content)));
  });

  test('parse in a stream', async () => {
    const final = await chat.stream(ask('Who?', { response_format })).finalChatCompletion();
    Person.parse(final.choices[0].message.parsed);
  });

  test('parsed tool arguments', async () => {
    const { message } = (await chat.parse(ask(OSLO, { tools: TOOLS }))).choices[0];
    assert.deepEqual(message.tool_calls[0].function.parsed_arguments, { city: 'Oslo' });
  });

  test('answers cut short or filtered', async () => {
    const parse = (content, more) => chat.parse(ask(content, { response_format, ...more }));
    await assert.rejects(parse('Who?', { max_tokens: 2 }), OpenAI.LengthFinishReasonError);
    await assert.rejects(parse('[[sim finish=length]]'), OpenAI.LengthFinishReasonError);
    await assert.rejects(parse('[[sim finish=content_filter]]'), OpenAI.ContentFilterFinishReasonError);
  });
});

describe('failures', () => {
  // The error that `promise` is rejected with: exactly of this class, with these fields and a request ID.
  async function failure(promise, kind, expected) {
    const error = await promise.then(() => assert.fail('the call succeeded'), (error) => error);
    assert.equal(error.constructor, kind, String(error));
    const { status, type, code } = error;
    assert.deepEqual({ status, type, code }, expected);
    assert.ok(error.requestID && error.error.message);
    return error;
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

  test('invalid and missing keys', async () => {
    const expected = { status: 401, type: 'authentication_error', code: 'invalid_api_key' };
    const wrong = clientFor(`sk-svc-${'x'.repeat(48)}`);
    await failure(wrong.chat.completions.create(HELLO), OpenAI.AuthenticationError, expected);
    const none = chat.create(HELLO, { headers: { Authorization: null } });
    await failure(none, OpenAI.AuthenticationError, { ...expected, code: 'missing_api_key' });
  });

  test('a model outside the plan', async () => {
    const free = clientFor((await createAccount('personal', 'free')).key);
    const call = free.chat.completions.create({ ...HELLO, model: 'svc-flex-beta-3.6' });
    const expected = { status: 403, type: 'tier_upgrade_required', code: 'forbidden' };
    const { error } = await failure(call, OpenAI.PermissionDeniedError, expected);
    const { current_tier, required_tier, model, upgrade_url } = error;
    assert.deepEqual([current_tier, required_tier, model], ['free', 'flex', 'svc-flex-beta-3.6']);
    assert.ok(upgrade_url.startsWith('http'));
    await assert.rejects(free.models.retrieve('svc-flex-beta-3.6'), OpenAI.NotFoundError);
  });

  test('a closed account', async () => {
    const closed = await createAccount();
    await closeAccount(closed);
    const call = clientFor(closed.key).chat.completions.create(HELLO);
    const expected = { status: 402, type: 'no_account', code: 'payment_required' };
    const { error } = await failure(call, OpenAI.APIError, expected);
    assert.equal(typeof error.balance, 'string');
    assert.ok(error.billing_url.startsWith('http'));
  });

  test('unknown models and routes', async () => {
    const model = { status: 404, type: 'invalid_request_error', code: 'model_not_found' };
    await failure(chat.create({ ...HELLO, model: 'svc-unknown' }), OpenAI.NotFoundError, model);
    await failure(client.models.retrieve('svc-unknown'), OpenAI.NotFoundError, model);
    const route = { status: 404, type: 'not_found', code: 'route_not_found' };
    await failure(client.embeddings.create({ model: MODEL, input: 'Hi' }), OpenAI.NotFoundError, route);
  });

  test('a budget below the minimum', async () => {
    const call = chat.create({ ...HELLO, model: 'svc-flex-beta-3.6', max_tokens: 127 });
    const expected = { status: 400, type: 'invalid_request_error', code: null };
    const error = await failure(call, OpenAI.BadRequestError, expected);
    assert.equal(error.param, 'max_tokens');
  });

  test('a provider that fails is tried again, one that refuses is not', async () => {
    const expected = { status: 502, type: 'upstream_error', code: '529' };
    for (const stream of [false, true]) {
      await failure(chat.create(ask('[[sim status=529]]', { stream })), OpenAI.InternalServerError, expected);
    }
    let [retrying, count] = counted();
    const failing = retrying.chat.completions.create(ask('[[sim status=529]]'), { maxRetries: 1 });
    await failure(failing, OpenAI.InternalServerError, expected);
    assert.equal(count.requests, 2);
    [retrying, count] = counted();
    const refused = retrying.chat.completions.create(ask('[[sim status=400]]'));
    await failure(refused, OpenAI.InternalServerError, { ...expected, code: '400' });
    assert.equal(count.requests, 1);
  });

  test('an interrupted stream', async () => {
    const [retrying, count] = counted();
    const received = [];
    const interrupted = async () => {
      const stream = await retrying.chat.completions.create(ask('[[sim drop_after=3]]', { stream: true }));
      for await (const chunk of stream) received.push(chunk.choices[0].delta.content);
    };
    const error = await interrupted().then(() => assert.fail('the stream ended'), (error) => error);
    assert.equal(error.constructor, OpenAI.APIError);
    assert.equal(error.code, 'stream_interrupted');
    assert.equal(error.type, 'upstream_stream_error');
    assert.equal(received.filter(Boolean).length, 3);
    assert.equal(count.requests, 1);
    const helped = chat.stream(ask('[[sim drop_after=3]]')).finalChatCompletion();
    await assert.rejects(helped, { code: 'stream_interrupted' });
  });
});
