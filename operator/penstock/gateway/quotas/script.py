"""The script by which a gateway reads and changes the shared store, all at once.

ARGV[1] is a batch as JSON (`batch.py`). The reply is a list of integers: the store's time in milliseconds,
the number of gateways, whether this one is new, and for each entry what was granted and the total with it. A
grant of -1: the window is not the store's present one.
"""

SCRIPT = """
local batch = cjson.decode(ARGV[1])
local prefix, gateway = batch.prefix, batch.gateway
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000

local function integer(number) return string.format('%.0f', number) end

local gateways = prefix .. 'gateways'
local is_new = redis.call('ZADD', gateways, integer(now), gateway)
redis.call('ZREMRANGEBYSCORE', gateways, '-inf', integer(now - batch.gateway_ttl_s))
if batch.leaves then redis.call('ZREM', gateways, gateway) end
local alive = math.max(1, redis.call('ZCARD', gateways))

local function grant(entry, free)
  if entry.least > free then return 0 end
  return math.max(math.min(entry.waiting, free), math.min(entry.wanted, math.floor(free / (4 * alive))))
end

local sequence = prefix .. 'sequence:' .. gateway
if batch.sequence > tonumber(redis.call('GET', sequence) or '0') then
  for _, each in ipairs(batch.counts) do
    local key = prefix .. each.key
    if redis.call('INCRBY', key, integer(each.amount)) < 0 then redis.call('SET', key, '0') end
    redis.call('EXPIREAT', key, integer(each.expires_s))
  end
  for _, each in ipairs(batch.usage) do
    local key = prefix .. each.key
    redis.call('HINCRBY', key, each.field, integer(each.amount))
    redis.call('EXPIREAT', key, integer(each.expires_s))
  end
  redis.call('SET', sequence, integer(batch.sequence), 'EX', '86400')
end

local reply = {math.floor(now * 1000), alive, is_new}
for _, each in ipairs(batch.takes) do
  local key = prefix .. each.key
  local total, granted = tonumber(redis.call('GET', key) or '0'), -1
  if now >= each.start_s and now < each.end_s then
    granted = grant(each, each.limit - total)
    if granted > 0 then
      total = total + granted
      redis.call('INCRBY', key, integer(granted))
      redis.call('EXPIREAT', key, integer(each.expires_s))
    end
  end
  reply[#reply + 1] = granted
  reply[#reply + 1] = total
end

for _, each in ipairs(batch.slots) do
  local key = prefix .. each.key
  local fields, total = redis.call('HGETALL', key), each.held
  for i = 1, #fields, 2 do
    if fields[i] ~= gateway then
      if redis.call('ZSCORE', gateways, fields[i]) then
        total = total + tonumber(fields[i + 1])
      else
        redis.call('HDEL', key, fields[i])
      end
    end
  end
  local granted = grant(each, each.limit - total)
  total = total + granted
  if each.held + granted > 0 then
    redis.call('HSET', key, gateway, integer(each.held + granted))
  else
    redis.call('HDEL', key, gateway)
  end
  reply[#reply + 1] = granted
  reply[#reply + 1] = total
end
return reply
"""
