#!lua name=rtmem_v1_memories

-- Long-term memory. An item is one hash, found by a key that is made of its owner, namespace and key; the query engine
-- indexes all of them (operations/vector_index.py has the schema).
--
--   HASH  rtmem:m:{<id>}
--     ns        owner/label/label, each escaped as in keys.py
--     k         key
--     v         value, as operations/serde.py writes it
--     ix        paths of what was embedded, as msgpack; only where the caller gave some
--     created   microseconds since 1970; kept when the item is written again, and the order of a listing
--     u         'updated ttl_ms sides': microseconds; 0 for none; how many side documents there are
--     scope     TAG: a hash for each prefix of the namespace, owner included
--     eq        TAG: a hash for each scalar of the value with its path
--     n_<path>  NUMERIC: a number of the value
--     s         TEXT: what can be searched for by words, stemmed by the client; in stores that rank by them
--     mark      TAG: `bare` no vector, `unembedded` there should be one, `side` see below
--     vector_<fingerprint>   VECTOR: its name says whose it is, so vectors of two embedders cannot be compared
--   HASH  rtmem:m:{<id>}:<n>, n = 1..sides: side documents
--     scope, eq, n_<path>, mark, vector_<fingerprint>: a further vector of the item
--   HASH  rtmem:memory
--     fingerprint, dims   whose vectors the index holds
--     name_<fingerprint>  what people call that embedder
--     index               its name; the alias `rtmem:memory` leads to it
--     next...             of an index that is being made: reindex_v1.lua
--
-- An item ends with its key, by PEXPIRE: that costs an index nothing, while any HSET of an indexed hash inserts its
-- vector anew (2.3 ms with HNSW). The index may still name an item whose time is over, so whoever searches looks at the
-- hash itself.

local function now_us()
  local now = redis.call('TIME')
  return string.format('%.0f', now[1] * 1000000 + now[2])
end

-- updated, ttl_ms, sides
local function open_u(u)
  local updated, ttl_ms, sides = u:match('^(%d+) (%d+) (%d+)$')
  return updated, tonumber(ttl_ms), tonumber(sides)
end

-- HSET of {name, value, ...}; Lua cannot pass on more than some 8,000 arguments.
local function set_fields(key, fields)
  for n = 1, #fields, 4000 do redis.call('HSET', key, unpack(fields, n, math.min(n + 3999, #fields))) end
end

local function expire(key, ttl_ms, sides)
  redis.call('PEXPIRE', key, ttl_ms)
  for n = 1, sides do redis.call('PEXPIRE', key .. ':' .. n, ttl_ms) end
end

local function drop(key, u)
  local _, _, sides = open_u(u)
  redis.call('DEL', key)
  for n = 1, sides do redis.call('DEL', key .. ':' .. n) end
end

-- An embedder as people know it, and its fingerprint; that alone for data of before names were kept.
local function named(meta, fingerprint)
  local name = redis.call('HGET', meta, 'name_' .. fingerprint)
  return name and '"' .. name .. '" (' .. fingerprint .. ')' or fingerprint
end

-- The first to bring vectors decides whose the index has. Replies whether the index is known to be there, and whether
-- another embedder's is being made (reindex_v1.lua).
local function check_embedder(meta, fingerprint, dims)
  local found = redis.call('HMGET', meta, 'fingerprint', 'index', 'dims', 'next_fingerprint')
  if not found[1] then
    if dims then redis.call('HSET', meta, 'fingerprint', fingerprint, 'dims', dims) end
  elseif found[1] ~= fingerprint then
    error({err = 'RTMEM_EMBEDDER this memory holds vectors of embedder ' .. named(meta, found[1]) .. ', not of ' ..
      named(meta, fingerprint)})
  end
  return found[2] and 1 or 0, found[4] and found[4] ~= fingerprint
end

-- Writing -------------------------------------------------------------------

local function set_vectors(key, field, vectors, common)
  -- vectors[1] is the item's own.
  for n = 2, table.maxn(vectors) do
    set_fields(key .. ':' .. n - 1, {field, vectors[n], 'mark', 'side'})
    set_fields(key .. ':' .. n - 1, common)
  end
end

-- What an item has and its new value, argv from `first` to `last`, has not. Before the new fields are set, so that the
-- item is indexed once.
local function drop_stale(key, u, sides, argv, first, last)
  local _, _, sides_before = open_u(u)
  for n = sides + 1, sides_before do redis.call('DEL', key .. ':' .. n) end
  local kept = {created = true, u = true}
  for n = first, last, 2 do kept[argv[n]] = true end
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if not kept[name] then return redis.call('DEL', key) end
  end
end

-- argv from `at` to `last`:
--   ttl_ms or 0  how many vectors besides the first, vectors...
--   how many of the following strings, name, value, name, value...: what side documents carry too
--   then name, value, name, value...: what only the item carries, its first vector included
local function put_one(key, field, argv, at, last, now)
  local ttl_ms, sides = tonumber(argv[at]), tonumber(argv[at + 1])
  local old = redis.call('HMGET', key, 'created', 'u')
  local first = at + 3 + sides
  if old[2] then drop_stale(key, old[2], sides, argv, first, last) end
  local u = now .. ' ' .. argv[at] .. ' ' .. sides
  -- Lua cannot pass on more than some 8,000 arguments.
  redis.call('HSET', key, 'created', old[1] or now, 'u', u, unpack(argv, first, math.min(first + 3999, last)))
  for n = first + 4000, last, 4000 do redis.call('HSET', key, unpack(argv, n, math.min(n + 3999, last))) end
  if sides > 0 then
    local common, vectors = {unpack(argv, first, first + math.min(tonumber(argv[first - 1]), 4000) - 1)}, {}
    for n = 1, sides do vectors[n + 1] = argv[at + 1 + n] end
    set_vectors(key, field, vectors, common)
  end
  if ttl_ms > 0 then
    expire(key, ttl_ms, sides)
  elseif old[2] then
    redis.call('PERSIST', key)
    for n = 1, sides do redis.call('PERSIST', key .. ':' .. n) end
  end
end

-- Several in one call: it costs 7 us by itself, and looking at rtmem:memory another 5, where a put takes 40.
-- KEYS 1..n items, of which none comes twice  n + 1 rtmem:memory, if there are vectors
-- ARGV 1 vector field  2 fingerprint  3 dims  4 n  then for each item how many strings follow, and these as for put_one
-- Replies {n, 1 if the index is there}
local function put_all(keys, argv)
  local count, meta, at = tonumber(argv[4]), keys[tonumber(argv[4]) + 1], 5
  local indexed, remade = 1, false
  if meta then indexed, remade = check_embedder(meta, argv[2], argv[3]) end
  local us = tonumber(now_us())
  for n = 1, count do
    local last = at + tonumber(argv[at])
    put_one(keys[n], argv[1], argv, at + 1, last, string.format('%.0f', us + n - 1)) -- listed in the order of the call
    if remade then redis.call('SADD', meta .. ':again', keys[n]) end
    at = last + 1
  end
  return {count, indexed}
end

-- Vectors for an item that has none yet, or none of this embedder, unless it was written meanwhile.
-- KEYS 1 item  2 rtmem:memory  ARGV 1 vector field  2 fingerprint  3 dims  4 updated, as it was read  vectors...   Replies 1, or 0
local function embed(keys, argv)
  local key = keys[1]
  local _, remade = check_embedder(keys[2], argv[2], argv[3])
  local row = redis.call('HMGET', key, 'u', 'scope', 'eq')
  if not row[1] then return 0 end
  local updated, ttl_ms, sides = open_u(row[1])
  if updated ~= argv[4] then return 0 end
  for n = 1, sides do redis.call('DEL', key .. ':' .. n) end
  local vectors, common = {}, {'scope', row[2], 'eq', row[3] or ''}
  for n = 5, #argv do vectors[#vectors + 1] = argv[n] end
  local all = redis.call('HGETALL', key)
  for n = 1, #all, 2 do
    if all[n]:find('^nx?_') then common[#common + 1], common[#common + 2] = all[n], all[n + 1] end
  end
  sides = math.max(#vectors - 1, 0)
  redis.call('HDEL', key, 'mark')
  if #vectors > 0 then
    redis.call('HSET', key, 'u', updated .. ' ' .. ttl_ms .. ' ' .. sides, argv[1], vectors[1])
  else
    redis.call('HSET', key, 'u', updated .. ' ' .. ttl_ms .. ' 0', 'mark', 'bare')
  end
  set_vectors(key, argv[1], vectors, common)
  local left_ms = redis.call('PTTL', key)
  if left_ms > 0 then expire(key, left_ms, sides) end
  if remade then redis.call('SADD', keys[2] .. ':again', key) end
  return 1
end

-- KEYS 1 item   Replies 1, or 0 if there was none
local function delete(keys)
  local u = redis.call('HGET', keys[1], 'u')
  if not u then return 0 end
  drop(keys[1], u)
  return 1
end

-- Reading -------------------------------------------------------------------

local PLACE = {'ns', 'k'}
local RESULTS_MAX = 1000000 -- of one query; the engine refuses more

-- {v, created, u} of an item that lives, or nil; with `refresh` its time begins anew.
local function read(key, refresh, fields)
  local row = redis.call('HMGET', key, 'v', 'created', 'u', unpack(fields))
  if not row[1] then return nil end
  if refresh then
    local _, ttl_ms, sides = open_u(row[3])
    if ttl_ms > 0 then expire(key, ttl_ms, sides) end
  end
  return row
end

-- KEYS 1 item  ARGV 1 '1' to refresh its ttl   Replies {v, created, u}, or nil
local function get(keys, argv)
  return read(keys[1], argv[1] == '1', {}) or false
end

-- What a search has shown counts as read.  KEYS 1 item   Replies 1, or 0 if its time is over
local function touch(keys)
  return read(keys[1], true, {}) and 1 or 0
end

-- FT.INFO writes names as status replies, which Lua has as tables.
local function text(reply)
  return type(reply) == 'table' and reply.ok or reply
end

-- What FT.INFO says, by name; or nothing and why.
local function look_at(index)
  local reply = redis.pcall('FT.INFO', index)
  if reply.err then return nil, reply.err end
  local info = {}
  for n = 1, #reply, 2 do info[text(reply[n])] = reply[n + 1] end
  return info
end

local function is_ready(info)
  return info and tostring(text(info.indexing)) == '0' and '1' or '0'
end

-- The same query by a vector for other many.
local function widen(query, most)
  query[2] = query[2]:gsub('%[KNN %d+', '[KNN ' .. most, 1)
  for n = 3, #query do
    if query[n] == 'LIMIT' then
      query[n + 2] = most
      return
    end
  end
end

-- Runs queries one after the other until there are enough documents.
-- argv from `at` on: most, n, the n words of a query without FT.SEARCH; most, n, ...
-- Replies the keys of items in order without repetition, the score of each or '', and whether the queries have more.
-- Of documents that are equally near as the last that a query by a vector brings, the engine takes any, and others for
-- another `most`. So where there may be more these are left out, or pages would not fit together; where it then is not
-- enough, the query is asked for more.
local function run_queries(argv, at, enough)
  local ids, scores, seen, n_ids = {}, {}, {}, 0
  while at <= #argv do
    if n_ids >= enough then return ids, scores, true end
    local most, words = tonumber(argv[at]), tonumber(argv[at + 1])
    local query, n_before = {unpack(argv, at + 2, at + 1 + words)}, n_ids
    while true do
      local reply = redis.call('FT.SEARCH', unpack(query))
      local count, n, last = 0, 2, ''
      while reply[n] do
        local id, score = reply[n]:match('^(.-})') or reply[n], ''
        if type(reply[n + 1]) == 'table' then
          score = reply[n + 1][2]
          n = n + 1
        end
        n, count, last = n + 1, count + 1, score
        if not seen[id] then
          n_ids = n_ids + 1
          seen[id], ids[n_ids], scores[n_ids] = true, id, score
        end
      end
      if count < most then break end
      while last ~= '' and n_ids > n_before and scores[n_ids] == last do
        seen[ids[n_ids]], ids[n_ids], scores[n_ids] = nil, nil, nil
        n_ids = n_ids - 1
      end
      if last == '' or n_ids >= enough or most >= RESULTS_MAX then return ids, scores, true end
      most = math.min(4 * most, RESULTS_MAX)
      widen(query, most)
    end
    at = at + 2 + words
  end
  return ids, scores, false
end

-- The items that queries lead to, in order.
-- KEYS 1 rtmem:memory
-- ARGV 1 '1' to refresh ttls  2 fingerprint, or '' without vectors  3 '1' to say whether the index is ready
--      4 how many living items to skip  5 how many to bring
--      6 how many documents the queries may find before later ones are left out  7 n  the names of n fields
--      then queries as for run_queries
-- Replies {1 if the queries have more, 1 if ready or '' if not asked, ids looked at,
--          {id, score, v, created, u, field...}, {...}, ...}
local function find(keys, argv)
  if argv[2] ~= '' then check_embedder(keys[1], argv[2]) end
  local skip, take = tonumber(argv[4]), tonumber(argv[5])
  local fields, at = {}, 8 + tonumber(argv[7])
  for n = 8, at - 1 do fields[#fields + 1] = argv[n] end
  local ids, scores, more = run_queries(argv, at, tonumber(argv[6]))
  local reply = {more and 1 or 0, argv[3] == '1' and is_ready(look_at(keys[1])) or '', #ids}
  for n, id in ipairs(ids) do
    if skip > 0 then
      skip = skip - redis.call('EXISTS', id)
    elseif #reply - 3 >= take then
      reply[1] = 1
      break
    else
      local row = read(id, argv[1] == '1', fields)
      if row then reply[#reply + 1] = {id, scores[n], unpack(row, 1, 3 + #fields)} end
    end
  end
  return reply
end

-- Runs queries side by side, for a ranking that is made of all their answers.
-- What only one of them finds, and finds behind `most` others, cannot rank before these, whatever the weights. So of an
-- item only its score is told, unless it stands before, or beside the last of them, or several queries find it: of the
-- 85 items of two windows of 50, 28 are told whole for a `most` of 10.
-- KEYS 1 rtmem:memory
-- ARGV 1 fingerprint, or '' without vectors  2 '1' to say whether the index is ready  3 window of each query  4 most
--      then 'words' or 'vectors', n, the n words of a query without FT.SEARCH; ...
-- Replies {1 if ready or '' if not asked, 1 if a query filled its window, {{id, score, id, score...}, ...},
--          {{v, created, u, ns, k, id}, ...}}
local function side_by_side(keys, argv)
  if argv[1] ~= '' then check_embedder(keys[1], argv[1]) end
  local window, lists, finders, more, at = tonumber(argv[3]), {}, {}, 0, 5
  while at <= #argv do
    local words, with_vectors = tonumber(argv[at + 1]), argv[at] == 'vectors'
    local reply = redis.call('FT.SEARCH', unpack(argv, at + 2, at + 1 + words))
    local list, length, seen = {}, 0, {}
    for n = 2, #reply, 2 do
      local id = reply[n]
      if id:byte(-1) ~= 125 then id = id:match('^(.-})') or id end -- no } at the end: a side document
      if not seen[id] then
        seen[id], finders[id] = true, (finders[id] or 0) + 1
        list[length + 1], list[length + 2] = id, with_vectors and reply[n + 1][2] or reply[n + 1]
        length = length + 2
      end
    end
    if #reply > 2 * window then more = 1 end
    lists[#lists + 1] = list
    at = at + 2 + words
  end
  local last, rows, told = 2 * tonumber(argv[4]), {}, {}
  for _, list in ipairs(lists) do
    for n = 1, #list, 2 do
      local id = list[n]
      if not told[id] and (n < last or finders[id] > 1 or list[n + 1] == list[last]) then
        told[id] = true
        local row = read(id, false, PLACE)
        if row then
          row[6] = id
          rows[#rows + 1] = row
        end
      end
    end
  end
  return {argv[2] == '1' and is_ready(look_at(keys[1])) or '', more, lists, rows}
end

-- All namespaces that a query leads to, without repetition.
-- ARGV 1 index  2 query   Replies {ns, ns, ...}
local function namespaces(_, argv)
  local found = redis.call('FT.AGGREGATE', argv[1], argv[2], 'LOAD', 1, '@ns', 'GROUPBY', 1, '@ns', 'DIALECT', 2,
    'TIMEOUT', 0)
  local reply = {}
  for n = 2, #found do
    if found[n][2] then reply[#reply + 1] = found[n][2] end -- nil: its time is over
  end
  return reply
end

-- The index ------------------------------------------------------------------

-- Add the fields that an index lacks. argv from `at` on: name, words, schema of a field...
local function add_missing(index, info, argv, at, with_vectors)
  local known, added = {}, 0
  for _, attribute in ipairs(info.attributes) do known[text(attribute[4])] = true end
  while argv[at] do
    local words = tonumber(argv[at + 1])
    if not known[argv[at]] and (with_vectors or argv[at]:sub(1, 7) ~= 'vector_') then
      redis.call('FT.ALTER', index, 'SCHEMA', 'ADD', unpack(argv, at + 2, at + 1 + words))
      added = added + 1
    end
    at = at + 2 + words
  end
  return added
end

-- Make the index if there is none, and tell what it is like.
-- KEYS 1 rtmem:memory
-- ARGV 1 name for a new one  2 fingerprint or ''  3 dims  4 name of the embedder  5 n  n words of a schema
--      then name, words, schema of a field...: to be added if the index lacks it
-- Replies {'1' if ready, documents, its name, fields added}, or {} where there is no query engine
local function setup(keys, argv)
  local alias = keys[1]
  local info, problem = look_at(alias)
  if problem and problem:find('Unknown Redis command') then return {} end
  if argv[2] ~= '' then
    redis.call('HSET', alias, 'name_' .. argv[2], argv[4]) -- also of one that is refused: the error names it
    check_embedder(alias, argv[2], argv[3])
  end
  local at = 6 + tonumber(argv[5])
  if not info then
    redis.pcall('FT.CREATE', argv[1], unpack(argv, 6, at - 1)) -- there may be one that lost its alias
    redis.call('FT.ALIASADD', alias, argv[1])
    info = look_at(alias)
  end
  redis.call('HSET', alias, 'index', text(info.index_name))
  local added = add_missing(alias, info, argv, at, true)
  local remade = redis.call('HGET', alias, 'next')
  local found = remade and look_at(remade)
  if found then add_missing(remade, found, argv, at, false) end
  return {is_ready(look_at(alias)), tostring(text(info.num_docs)), text(info.index_name), added}
end

redis.register_function('rtmem_v1_memories_put_all', put_all)
redis.register_function('rtmem_v1_memories_embed', embed)
redis.register_function{function_name = 'rtmem_v1_memories_namespaces', callback = namespaces, flags = {'no-writes'}}
-- Freeing, and reading, must work when Redis is full.
redis.register_function{function_name = 'rtmem_v1_memories_setup', callback = setup, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_memories_find', callback = find, flags = {'allow-oom'}}
redis.register_function{
  function_name = 'rtmem_v1_memories_side_by_side', callback = side_by_side, flags = {'no-writes'}
}
redis.register_function{function_name = 'rtmem_v1_memories_get', callback = get, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_memories_touch', callback = touch, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_memories_delete', callback = delete, flags = {'allow-oom'}}
