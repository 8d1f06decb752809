-- Reading: near questions, and entries for people.

-- The nearest questions of a scope.
-- ARGV 1 distance up to which an entry is brought  2 '1' to heed thresholds of entries
--      then the words of a query without FT.SEARCH
-- Replies {{id, distance, threshold or '', prompt, answer, created, took, tags}, ...}
local function find(keys, argv)
  local reply, rows = redis.call('FT.SEARCH', unpack(argv, 3)), {}
  local n = 2
  while reply[n] do
    local key, found = reply[n], reply[n + 1]
    if type(found) == 'table' then
      n = n + 2
      local id, distance = key:sub(#keys[1] + 1), tonumber(found[2])
      local row = redis.call('HMGET', key, 'threshold', 'prompt', unpack(ROW))
      local most = math.min(tonumber(argv[1]), argv[2] == '1' and tonumber(row[1] or 9) or 9)
      if row[2] and is_whole(row, 3) and distance <= most and key:sub(1, #keys[1]) == keys[1] then
        rows[#rows + 1] = {id, found[2], row[1] or '', unpack(row, 2)}
      end
    else
      n = n + 1
    end
  end
  return rows
end

-- Of one entry, for people:
-- {id, prompt, model, created, took, tags, scope, threshold or '', ms left or -1, hits, bytes}
local function describe(entries, books, id)
  local row = redis.call('HMGET', entries .. id, 'prompt', 'model', 'created', 'took', 'tags', 'scope', 'threshold')
  if not row[1] then return nil end
  local record = record_of(books, id) or {0, 0, 0, 0, {}}
  row[7] = row[7] or ''
  return {id, row[1], row[2], row[3], row[4], row[5], row[6], row[7], redis.call('PTTL', entries .. id), record[3],
    record[1]}
end

-- ARGV 1 id   Replies what `describe` says and its answer, or {}
local function entry(keys, argv)
  local row = describe(keys[1], keys[2], argv[1])
  if not row then return {} end
  row[#row + 1] = redis.call('HGET', keys[1] .. argv[1], 'answer')
  return row
end

-- Entries, newest first, or in the order of their ids below a link.
-- ARGV 1 '*' or a link  2 where to go on or ''  3 how many at most
-- Replies {where to go on or '', {...}, ...}
local function list(keys, argv)
  local books, reply, ids = keys[2], {''}, {}
  if argv[1] == '*' then
    local from = argv[2] == '' and '+inf' or '(' .. argv[2]
    local found = redis.call('ZREVRANGEBYSCORE', books .. 'created', from, '-inf', 'WITHSCORES', 'LIMIT', 0, argv[3])
    for n = 1, #found, 2 do ids[#ids + 1] = found[n] end
    if #ids == tonumber(argv[3]) then reply[1] = text(tonumber(found[#found])) end
  else
    local next_start
    ids, next_start = some_of(books, argv[1], argv[2], 0, tonumber(argv[3]))
    reply[1] = next_start or ''
  end
  for _, id in ipairs(ids) do reply[#reply + 1] = describe(keys[1], books, id) end
  return reply
end

-- ARGV 1 what names of indexes begin with
-- Replies {entries, entries by the time that are over, {name, value, ...} of totals, {index, ...}}
local function stats(keys, argv)
  local books, indexes, now_ms = keys[2], {}, text(math.floor(now_us() / 1000))
  local names = redis.pcall('FT._LIST')
  for _, name in ipairs(names.err and {} or names) do
    name = type(name) == 'table' and name.ok or name
    if name:sub(1, #argv[1]) == argv[1] then indexes[#indexes + 1] = name end
  end
  return {redis.call('ZCARD', books .. 'created'), redis.call('ZCOUNT', books .. 'expires', '-inf', now_ms),
    redis.call('HGETALL', books .. 'totals'), indexes}
end

redis.register_function{function_name = 'rtmem_v1_cache_find', callback = find, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v1_cache_entry', callback = entry, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v1_cache_list', callback = list, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v1_cache_stats', callback = stats, flags = {'no-writes'}}
