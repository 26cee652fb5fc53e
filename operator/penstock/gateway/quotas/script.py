"""The script by which a gateway reads and changes the shared store, all at once.

ARGV[1] is a call as JSON (`store_call.py`, which also reads the reply). Each count is a hash: its total, and
what each gateway has of it. A gateway states its part as a whole, so a call that is repeated, or a server
that has lost data, does no harm. A key that holds something else fails alone, with a grant of -2. A grant of
-1: the window is not the store's present one.
"""

SCRIPT = """
local call = cjson.decode(ARGV[1])
local prefix, gateway = call.prefix, call.gateway
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000

local function integer(number) return string.format('%.0f', number) end
local function seconds(number) return string.format('%.6f', number) end

local function parse(text)
  local number = tonumber(text)
  if number and number == math.floor(number) and math.abs(number) < 2^53 then return number end
end

local function read(key, field)
  local found = redis.pcall('HGET', key, field)
  if type(found) == 'table' then return nil end
  return parse(found or '0')
end

local state = prefix .. 'gateway:' .. gateway
local last = redis.call('HMGET', state, 'call', 'usage')
local last_call, last_usage = tonumber(last[1] or '0'), tonumber(last[2] or '0')
if call.number <= last_call then return {} end
local has_lost = last_call < call.answered_call

local gateways, changed = prefix .. 'gateways', prefix .. 'changed'
local newest = redis.call('ZREVRANGE', gateways, 0, 0, 'WITHSCORES')[2]
local is_new = redis.call('ZADD', gateways, seconds(now), gateway) == 1
redis.call('ZREMRANGEBYSCORE', gateways, '-inf', seconds(now - call.gateway_ttl_s))
redis.call('ZREMRANGEBYSCORE', changed, '-inf', seconds(now - call.gateway_ttl_s))
if call.leaves then redis.call('ZREM', gateways, gateway) end
local alive = math.max(1, redis.call('ZCARD', gateways))

local outage, stated = prefix .. 'outage', prefix .. 'stated'
local told = redis.call('HMGET', outage, 'ended', 'gateways', 'shared_from')
local ended, expected = tonumber(told[1] or '0'), tonumber(told[2] or '0')
local shared_from = tonumber(told[3] or '0')
local is_gap = newest and now - tonumber(newest) > call.max_gap_s
local is_back = is_new and call.answered_call > 0
if (is_gap or is_back or call.was_down) and now >= shared_from then
  ended, expected, shared_from = now, 0, now + call.max_settle_s
  redis.call('DEL', stated)
end
if now < shared_from then
  expected = math.max(expected, call.num_gateways)
  if call.outage_ms == math.floor(ended * 1000) then redis.call('SADD', stated, gateway) end
  if redis.call('SCARD', stated) >= expected then
    shared_from = math.min(shared_from, now + call.settle_s)
  end
  redis.call('HSET', outage, 'ended', seconds(ended), 'gateways', integer(expected),
    'shared_from', seconds(shared_from))
  redis.call('EXPIRE', outage, '60')
  redis.call('EXPIRE', stated, '60')
end

local function grant(entry, free)
  if entry.wanted == 0 or entry.least > free or now < shared_from then return 0 end
  return math.max(math.min(entry.waiting, free), math.min(entry.wanted, math.floor(free / (4 * alive))))
end

local failed = {}
if call.usage_sequence > last_usage then
  last_usage = call.usage_sequence
  for i, each in ipairs(call.usage) do
    local key = prefix .. each.key
    local added = redis.pcall('HINCRBY', key, each.field, integer(each.amount))
    if type(added) == 'table' then failed[#failed + 1] = i - 1 else
      redis.call('EXPIREAT', key, integer(each.expires_s))
    end
  end
end
redis.call('HSET', state, 'call', integer(call.number), 'usage', integer(last_usage))
redis.call('EXPIRE', state, '86400')

local function count(entry)
  local key = prefix .. entry.key
  local total, part = read(key, 'total'), read(key, gateway)
  if not total or not part then return -2, 0 end
  total = math.max(0, total + entry.held - part)
  if now < entry.start_s or now >= entry.end_s then return -1, total end
  local granted = grant(entry, entry.limit - total)
  total = total + granted
  if part == 0 and entry.held + granted == 0 then return granted, total end
  if entry.is_final then redis.call('HDEL', key, gateway) else
    redis.call('HSET', key, gateway, integer(entry.held + granted))
  end
  redis.call('HSET', key, 'total', integer(total))
  redis.call('EXPIREAT', key, integer(entry.expires_s))
  if part ~= entry.held + granted then redis.call('ZADD', changed, seconds(now), entry.key) end
  return granted, total
end

local function running(key)
  local fields, total = redis.pcall('HGETALL', key), 0
  if fields.err then return nil end
  for i = 1, #fields, 2 do
    local number = parse(fields[i + 1])
    if not number then return nil end
    if not redis.call('ZSCORE', gateways, fields[i]) then
      redis.call('HDEL', key, fields[i])
    elseif fields[i] ~= gateway then
      total = total + number
    end
  end
  return total
end

local function hold(entry)
  local key = prefix .. entry.key
  local others = running(key)
  if not others then return -2, 0 end
  local granted = grant(entry, entry.limit - others - entry.held)
  local held = entry.held + granted
  if held ~= read(key, gateway) then redis.call('ZADD', changed, seconds(now), entry.key) end
  if held > 0 then redis.call('HSET', key, gateway, integer(held)) else redis.call('HDEL', key, gateway) end
  return granted, others + held
end

local grants = {}
for _, each in ipairs(call.counts) do grants[#grants + 1], grants[#grants + 2] = count(each) end
for _, each in ipairs(call.slots) do grants[#grants + 1], grants[#grants + 2] = hold(each) end

local totals, since = {}, seconds(call.since_s)
local names = redis.call('ZREVRANGEBYSCORE', changed, '+inf', since, 'LIMIT', 0, 500)
for _, name in ipairs(names) do
  local key, total = prefix .. name, nil
  if string.sub(name, 1, 8) == 'running:' then
    total = running(key)
    if total then total = total + read(key, gateway) end
  else
    total = read(key, 'total')
  end
  if total then totals[#totals + 1] = name; totals[#totals + 1] = integer(total) end
end

return {
  math.floor(now * 1000), alive, has_lost and 1 or 0, math.floor(ended * 1000),
  math.floor(shared_from * 1000), grants, failed, totals,
}
"""
