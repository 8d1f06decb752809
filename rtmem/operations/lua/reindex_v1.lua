#!lua name=rtmem_v1_reindex

-- A new index of long-term memory, made beside the old one while everybody reads and writes. memories_v1.lua and
-- facts_v1.lua have the layout. Until the alias is switched,
--
--   HASH  rtmem:memory           has also
--     next                       name of the new index
--     next_fingerprint, next_dims, next_algorithm   whose vectors it will hold, and how it is built
--     leftovers                  since when (us) there may be vectors of an embedder that is none of these
--   SET   rtmem:memory:again     keys that were written meanwhile with vectors of the old embedder: they need new ones
--
-- Every function does a bounded piece of work. What has been done shows in the documents themselves, so whoever begins
-- again goes on. Which keys there are is found here, so they cannot be declared; no Cluster has this layout's engine.
--
-- KEYS of every function  1 rtmem:memory  2 what the keys of all memories begin with

local SEPARATOR = '\31'

-- FT.INFO writes names as status replies, which Lua has as tables.
local function text(reply)
  return tostring(type(reply) == 'table' and reply.ok or reply)
end

local function by_name(reply)
  local found = {}
  for n = 1, #reply - 1, 2 do found[text(reply[n])] = reply[n + 1] end
  return found
end

local function look_at(index)
  local reply = redis.pcall('FT.INFO', index)
  return not reply.err and by_name(reply) or nil
end

local function is_ready(info)
  return info and text(info.indexing) == '0' and tonumber(text(info.percent_indexed)) == 1
end

local function attributes(info)
  local found = {}
  for _, each in ipairs(info.attributes) do
    local one = by_name(each)
    found[#found + 1] = {text(one.attribute), text(one.type), one.algorithm and text(one.algorithm):lower() or ''}
  end
  return found
end

local function meta_of(keys)
  local names = {'fingerprint', 'index', 'next', 'next_fingerprint', 'next_dims', 'next_algorithm', 'leftovers', 'dims'}
  local meta = {}
  for n, value in ipairs(redis.call('HMGET', keys[1], unpack(names))) do meta[names[n]] = value or nil end
  return meta
end

local function now_us()
  local now = redis.call('TIME')
  return string.format('%.0f', now[1] * 1000000 + now[2])
end

-- A part of all keys of memories: {cursor, {key, ...}}
local function page_of(keys, cursor, count)
  local pattern = keys[2]:gsub('[*?%[%]\\^]', '\\%0') .. '*'
  return redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', count, 'TYPE', 'hash')
end

local function replaced()
  error({err = 'RTMEM_REINDEX this reindex was replaced by another one, or the memory was flushed meanwhile'})
end

-- {docs, '1' if ready, share that is indexed, MB of vectors, MB of the rest, {{name, type, algorithm}, ...}}, or {}
local function told(info)
  if not info then return {} end
  local rest = 0
  for name, value in pairs(info) do
    if name:match('_sz_mb$') or name:match('_size_mb$') then
      if name ~= 'vector_index_sz_mb' and name ~= 'total_index_memory_sz_mb' then
        rest = rest + (tonumber(text(value)) or 0)
      end
    end
  end
  return {text(info.num_docs), is_ready(info) and '1' or '0', text(info.percent_indexed), text(info.vector_index_sz_mb),
    tostring(rest), attributes(info)}
end

-- Replies {fingerprint, dims, index, next, next_fingerprint, leftovers, how many wait in `again`, index, next as `told`,
--   name of the embedder, of the next}
local function state(keys)
  local meta = meta_of(keys)
  local function name(fingerprint) return fingerprint and redis.call('HGET', keys[1], 'name_' .. fingerprint) or '' end
  return {meta.fingerprint or '', meta.dims or '', meta.index or '', meta.next or '', meta.next_fingerprint or '',
    meta.leftovers or '', redis.call('SCARD', keys[1] .. ':again'), told(look_at(keys[1])),
    told(meta.next and look_at(meta.next)), name(meta.fingerprint), name(meta.next_fingerprint)}
end

-- How many documents each query finds, and what some of the memories that the first one finds take.
-- ARGV 1 how many of these to look at  then queries
-- Replies {{count, ...}, how many were looked at, their bytes}
local function counts(keys, argv)
  local found = {}
  for n = 2, #argv do
    local reply = redis.call('FT.SEARCH', keys[1], argv[n], 'LIMIT', 0, 0, 'DIALECT', 2, 'TIMEOUT', 0)
    found[#found + 1] = reply[1]
  end
  local sample = redis.call('FT.SEARCH', keys[1], argv[2], 'NOCONTENT', 'LIMIT', 0, argv[1], 'DIALECT', 2, 'TIMEOUT', 0)
  local looked, bytes = 0, 0
  for n = 2, #sample do
    local taken = redis.call('MEMORY', 'USAGE', sample[n], 'SAMPLES', 0)
    if taken then looked, bytes = looked + 1, bytes + taken end
  end
  return {found, looked, bytes}
end

local function abandon(keys, meta)
  redis.pcall('FT.DROPINDEX', meta.next)
  redis.call('DEL', keys[1] .. ':again')
  redis.call('HDEL', keys[1], 'next', 'next_fingerprint', 'next_dims', 'next_algorithm')
  meta.next, meta.leftovers = nil, now_us()
  redis.call('HSET', keys[1], 'leftovers', meta.leftovers)
end

local function algorithm_of(info, field)
  for _, each in ipairs(info and attributes(info) or {}) do
    if each[1] == field then return each[3] end
  end
end

-- ARGV 1 fingerprint  2 dims  3 flat or hnsw  4 the vectors' field  5 name of the embedder  6 '1' to give way
--   then words of a schema
-- Replies 'build'; 'clear' leftovers have to go before; 'done' the index is like that already; 'no engine';
--   'busy' with another embedder, or another reindex, and this one gives way
local function begin(keys, argv)
  local meta = meta_of(keys)
  local others = meta.fingerprint ~= argv[1] or meta.leftovers or
    meta.next and (meta.next_fingerprint ~= argv[1] or meta.next_algorithm ~= argv[3])
  if argv[6] == '1' and others then return 'busy' end
  redis.call('HSET', keys[1], 'name_' .. argv[1], argv[5])
  if meta.next and (meta.next_fingerprint ~= argv[1] or meta.next_algorithm ~= argv[3] or not look_at(meta.next)) then
    abandon(keys, meta)
  end
  if meta.next then return 'build' end
  if meta.leftovers then return 'clear' end
  local info = look_at(keys[1])
  if meta.fingerprint == argv[1] and algorithm_of(info, argv[4]) == argv[3] then return 'done' end
  local number = info and tonumber(text(info.index_name):match('(%d+)$')) or 0
  local name = keys[1] .. ':' .. string.format('%d', number + 1)
  redis.pcall('FT.DROPINDEX', name) -- one that was left without a record of it
  local made = redis.pcall('FT.CREATE', name, unpack(argv, 7))
  if made.err and made.err:find('Unknown Redis command') then return 'no engine' end
  if made.err then return made end
  redis.call('HSET', keys[1], 'next', name, 'next_fingerprint', argv[1], 'next_dims', argv[2], 'next_algorithm', argv[3])
  return 'build'
end

-- Documents ------------------------------------------------------------------

local function has(marks, mark)
  return (SEPARATOR .. (marks or '') .. SEPARATOR):find(SEPARATOR .. mark .. SEPARATOR, 1, true) ~= nil
end

-- {key, u, v, ix} of what should have a vector in `field` and has none, or nil
local function to_embed(key, field)
  local row = redis.call('HMGET', key, 'u', 'mark', 'v', 'ix')
  if not row[1] or has(row[2], 'bare') or redis.call('HEXISTS', key, field) == 1 then return nil end
  return {key, row[1], row[3], row[4] or ''}
end

-- Of a part of all memories, what needs a vector of the new embedder.
-- ARGV 1 fingerprint  2 the vectors' field  3 cursor  4 about how many to look at
-- Replies {cursor, items looked at, {key, u, v, ix}, ...}
local function pending(keys, argv)
  if meta_of(keys).next_fingerprint ~= argv[1] then replaced() end
  local page = page_of(keys, argv[3], argv[4])
  local reply = {page[1], 0}
  for _, key in ipairs(page[2]) do
    if key:sub(-1) == '}' then
      reply[2] = reply[2] + 1
      reply[#reply + 1] = to_embed(key, argv[2])
    end
  end
  return reply
end

-- Of what was written meanwhile, what still needs one.  ARGV 1 fingerprint  2 field  3 how many at most
-- Replies {how many are left, {key, u, v, ix}, ...}
local function again(keys, argv)
  if meta_of(keys).next_fingerprint ~= argv[1] then replaced() end
  local waiting = keys[1] .. ':again'
  local reply = {0}
  for _, key in ipairs(redis.call('SRANDMEMBER', waiting, argv[3])) do
    local row = to_embed(key, argv[2])
    if row then reply[#reply + 1] = row else redis.call('SREM', waiting, key) end
  end
  reply[1] = redis.call('SCARD', waiting)
  return reply
end

-- A further vector of an item, in a document of its own.
local function set_side(key, n, old_sides, field, vector)
  local side = key .. ':' .. n
  redis.call('HSET', side, field, vector)
  if n <= old_sides then return end
  local all, common = redis.call('HGETALL', key), {'mark', 'side'}
  for i = 1, #all, 2 do
    if all[i] == 'scope' or all[i] == 'eq' or all[i]:find('^nx?_') then
      common[#common + 1], common[#common + 2] = all[i], all[i + 1]
    end
  end
  for i = 1, #common, 4000 do redis.call('HSET', side, unpack(common, i, math.min(i + 3999, #common))) end
  local left_ms = redis.call('PTTL', key)
  if left_ms > 0 then redis.call('PEXPIRE', side, left_ms) end
end

-- Vectors of the new embedder beside the old ones, unless the item was written meanwhile: then `again` has it.
-- ARGV 1 fingerprint  2 field  3 key  4 u, as it was read  5 `mark`, if there are no vectors  vectors...
-- Replies 1, or 0
local function embed(keys, argv)
  if meta_of(keys).next_fingerprint ~= argv[1] then replaced() end
  local key = argv[3]
  local u = redis.call('HGET', key, 'u')
  if u ~= argv[4] then return 0 end
  redis.call('SREM', keys[1] .. ':again', key)
  if #argv == 5 then
    redis.call('HSET', key, 'mark', argv[5])
    return 1
  end
  local updated, ttl_ms, sides = u:match('^(%d+) (%d+) (%d+)$')
  redis.call('HSET', key, argv[2], argv[6])
  for n = 7, #argv do set_side(key, n - 6, tonumber(sides), argv[2], argv[n]) end
  if #argv - 6 > tonumber(sides) then
    redis.call('HSET', key, 'u', updated .. ' ' .. ttl_ms .. ' ' .. string.format('%d', #argv - 6))
  end
  return 1
end

-- Make the new index the one that everybody finds, and drop the old one, if nothing is left to do.
-- ARGV 1 fingerprint   Replies 1, or 0: not yet
local function switch(keys, argv)
  local meta = meta_of(keys)
  if meta.next_fingerprint ~= argv[1] then replaced() end
  if redis.call('SCARD', keys[1] .. ':again') > 0 or not is_ready(look_at(meta.next)) then return 0 end
  redis.call('FT.ALIASUPDATE', keys[1], meta.next)
  redis.call('HSET', keys[1], 'fingerprint', argv[1], 'dims', meta.next_dims, 'index', meta.next)
  if meta.fingerprint ~= argv[1] then redis.call('HSET', keys[1], 'leftovers', now_us()) end
  redis.call('HDEL', keys[1], 'next', 'next_fingerprint', 'next_dims', 'next_algorithm')
  if meta.index then redis.pcall('FT.DROPINDEX', meta.index) end
  return 1
end

-- Tidying --------------------------------------------------------------------

-- Remove vectors of other embedders from a part of all memories, and find what should have one and has none.
-- ARGV 1 cursor  2 about how many to look at  3 '1' to look for the latter
-- Replies {cursor, items looked at, leftovers, {key, u, v, ix}, ...}
local function tidy(keys, argv)
  local meta = meta_of(keys)
  local kept = {}
  for _, fingerprint in pairs({meta.fingerprint or '', meta.next_fingerprint}) do kept['vector_' .. fingerprint] = true end
  local page = page_of(keys, argv[1], argv[2])
  local reply = {page[1], 0, meta.leftovers or ''}
  for _, key in ipairs(page[2]) do
    local gone, left = {}, false
    for _, name in ipairs(meta.leftovers and redis.call('HKEYS', key) or {}) do
      if name:sub(1, 7) == 'vector_' then
        if kept[name] then left = true else gone[#gone + 1] = name end
      end
    end
    if key:sub(-1) == '}' then
      reply[2] = reply[2] + 1
      if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
      if argv[3] == '1' then
        local row = redis.call('HMGET', key, 'mark', 'u', 'v', 'ix')
        if row[2] and has(row[1], 'unembedded') then reply[#reply + 1] = {key, row[2], row[3], row[4] or ''} end
      end
    elseif #gone > 0 then
      if left then redis.call('HDEL', key, unpack(gone)) else redis.call('DEL', key) end
    end
  end
  return reply
end

-- Nothing of other embedders is left.
-- ARGV 1 leftovers, as it was when the look at all memories began   Replies 1, or 0: there are new ones
local function tidied(keys, argv)
  if redis.call('HGET', keys[1], 'leftovers') ~= argv[1] then return 0 end
  return redis.call('HDEL', keys[1], 'leftovers')
end

redis.register_function{function_name = 'rtmem_v1_reindex_state', callback = state, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v1_reindex_counts', callback = counts, flags = {'no-writes'}}
redis.register_function('rtmem_v1_reindex_begin', begin)
redis.register_function{function_name = 'rtmem_v1_reindex_pending', callback = pending, flags = {'no-writes'}}
redis.register_function('rtmem_v1_reindex_again', again)
redis.register_function('rtmem_v1_reindex_embed', embed)
redis.register_function{function_name = 'rtmem_v1_reindex_switch', callback = switch, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_reindex_tidy', callback = tidy, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_reindex_tidied', callback = tidied, flags = {'allow-oom'}}
