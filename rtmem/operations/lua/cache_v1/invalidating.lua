-- Invalidation: what is dropped, and floors against what comes late.

-- Ids by a link, from member `start` on, or by age.
-- Replies ids and where to go on, or nil
local function some_of(books, link, start, cutoff_us, most)
  if link == '*' then
    local ids = redis.call('ZRANGEBYSCORE', books .. 'created', '-inf', text(cutoff_us), 'LIMIT', 0, most)
    return ids, #ids == most and '' or nil
  end
  local prefix = link .. ':'
  local from = start ~= '' and '(' .. start or '[' .. prefix
  local members = redis.call('ZRANGEBYLEX', books .. 'links', from, '(' .. link .. ';', 'LIMIT', 0, most)
  local ids = {}
  for n, member in ipairs(members) do ids[n] = member:sub(#prefix + 1) end
  return ids, #members == most and members[most] or nil
end

-- ARGV 1 what: '*', 'e:<id>' or a link  2 only what is so many us old  3 how long floors are kept, us
--      4 when this began, us; '' at first  5 where to go on; ''  6 how many at most
-- Replies {how many are gone, when it began, where to go on or nil}
local function invalidate(keys, argv)
  local entries, books, what = keys[1], keys[2], argv[1]
  local now, gone = now_us(), 0
  local began = tonumber(argv[4]) or now
  local cutoff = began - tonumber(argv[2])
  if argv[4] == '' then
    redis.call('ZADD', books .. 'floors', 'GT', text(cutoff), what)
    redis.call('ZREMRANGEBYSCORE', books .. 'floors', '-inf', '(' .. text(now - tonumber(argv[3])))
    redis.call('PEXPIRE', books .. 'floors', math.ceil(tonumber(argv[3]) / 1000))
  end
  local ids, next_start
  if what:sub(1, 2) == 'e:' then
    ids = {what:sub(3)}
  else
    ids, next_start = some_of(books, what, argv[5], cutoff, tonumber(argv[6]))
  end
  for _, id in ipairs(ids) do
    local created = tonumber(redis.call('ZSCORE', books .. 'created', id) or 0)
    if created <= cutoff then
      gone = gone + redis.call('EXISTS', entries .. id)
      forget(entries, books, id)
    end
  end
  return {gone, text(began), next_start}
end

-- Freeing, and reading, must work when Redis is full.
redis.register_function{function_name = 'rtmem_v1_cache_invalidate', callback = invalidate, flags = {'allow-oom'}}
