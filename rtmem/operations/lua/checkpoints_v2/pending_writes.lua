-- Pending writes: those of tasks whose checkpoint is there, and those that came before theirs.

local function early_members(c)
  local early = redis.call('HGET', c, 'e')
  return early and cmsgpack.unpack(early) or {}
end

local function set_early(c, members)
  if #members == 0 then redis.call('HDEL', c, 'e') else redis.call('HSET', c, 'e', cmsgpack.pack(members)) end
end

local function delete_writes(c, member, freed)
  local tasks = redis.call('HGET', c, 't' .. member)
  if not tasks then return end
  local list = cmsgpack.unpack(tasks)
  local fields = {'t' .. member}
  local may_refer = redis.call('HEXISTS', c, 'y') == 1
  for at = 2, #list do
    local field = 'w' .. member .. '\0' .. list[at]
    fields[#fields + 1] = field
    local raw = may_refer and redis.call('HGET', c, field)
    local writes = raw and cmsgpack.unpack(raw) or {}
    for k = 4, #writes, 3 do
      if is_reference(writes[k]) then dismiss(c, writes[k], freed) end
    end
  end
  for at = 1, #fields, CHUNK do
    redis.call('HDEL', c, unpack(fields, at, math.min(at + CHUNK - 1, #fields)))
  end
end

-- Flat: task_id, task_path, idx, channel, value, task_id, ...
local function read_writes(c, member, tasks)
  local flat = {}
  for at = 2, #tasks do
    local task_id = tasks[at]
    local raw = redis.call('HGET', c, 'w' .. member .. '\0' .. task_id)
    if not raw then error({err = 'RTMEM_CORRUPT the writes of task ' .. task_id .. ' are gone'}) end
    local writes = cmsgpack.unpack(raw)
    for k = 2, #writes, 3 do
      local n = #flat
      flat[n + 1], flat[n + 2] = task_id, writes[1]
      flat[n + 3], flat[n + 4], flat[n + 5] = writes[k], writes[k + 1], writes[k + 2]
    end
  end
  return flat
end

local function tasks_of(c, member)
  local tasks = redis.call('HGET', c, 't' .. member)
  return tasks and cmsgpack.unpack(tasks) or {''}
end
