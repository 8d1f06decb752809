#!lua name=rtmem_v1_nodes

-- What nodes of a graph returned, for who gives them the same again. All keys of a tenant share a hash tag.
--
--   STRING rtmem:n:{<tenant>}:v:<id>   a value; it ends with its key. <id> is <namespace>:<key>, both hashed
--   ZSET   rtmem:n:{<tenant>}:i        ids, all of score 0: those of a namespace are neighbours
--   ZSET   rtmem:n:{<tenant>}:x        ids by the millisecond at which their value ends; what stays is not in it
--
-- KEYS of all: 1 what keys of values begin with  2 ids  3 ends

local SWEPT = 64

local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

local function forget(keys, id)
  redis.call('ZREM', keys[2], id)
  redis.call('ZREM', keys[3], id)
end

-- ARGV id, ttl in ms ('' for a value that stays, 0 or less for one that is over), value, id...
local function put(keys, argv)
  local now = now_ms()
  -- What Redis has ended by itself leaves its id behind.
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', keys[3], '-inf', string.format('%.0f', now), 'LIMIT', 0, SWEPT)) do
    forget(keys, id)
  end
  for n = 1, #argv, 3 do
    local id, ttl = argv[n], tonumber(argv[n + 1])
    if not ttl then
      redis.call('SET', keys[1] .. id, argv[n + 2])
      redis.call('ZADD', keys[2], 0, id)
      redis.call('ZREM', keys[3], id)
    elseif ttl > 0 then
      redis.call('SET', keys[1] .. id, argv[n + 2], 'PX', argv[n + 1])
      redis.call('ZADD', keys[2], 0, id)
      redis.call('ZADD', keys[3], string.format('%.0f', now + ttl), id)
    else
      redis.call('DEL', keys[1] .. id)
      forget(keys, id)
    end
  end
end

-- ARGV 1 how many at most  then namespaces, or none for all
-- Replies how many ids are gone: fewer than that, and there are no more.
local function clear(keys, argv)
  local left = tonumber(argv[1])
  local ranges = {}
  for n = 2, #argv do ranges[#ranges + 1] = {'[' .. argv[n] .. ':', '(' .. argv[n] .. ';'} end  -- ; follows : in ASCII
  if #ranges == 0 then ranges[1] = {'-', '+'} end
  local gone = 0
  for _, range in ipairs(ranges) do
    for _, id in ipairs(redis.call('ZRANGEBYLEX', keys[2], range[1], range[2], 'LIMIT', 0, left)) do
      redis.call('UNLINK', keys[1] .. id)
      forget(keys, id)
      gone, left = gone + 1, left - 1
    end
    if left == 0 then break end
  end
  return gone
end

redis.register_function('rtmem_v1_nodes_put', put)
redis.register_function{function_name = 'rtmem_v1_nodes_clear', callback = clear, flags = {'allow-oom'}}
