# ActiveRecord, over pg and mysql2.
# speaks: postgres mariadb mysql
# needs: ruby ruby-activerecord ruby-pg ruby-mysql2

require_relative 'cases'
require 'active_record'
require 'active_support/core_ext/numeric/time'
require 'json'
require 'stringio'

ActiveRecord::Base.establish_connection(
  adapter: IS_POSTGRES ? 'postgresql' : 'mysql2',
  host: HOST, port: PORT, database: DATABASE, username: USER, pool: 10
)

class Records
  # A connection of the pool, which this takes for good.
  def connect
    pool = ActiveRecord::Base.connection_pool
    connection = pool.checkout
    pool.remove(connection)
    connection
  end

  def close(connection) = connection.disconnect!

  # Repeated, it is to be asked again: not by the query cache.
  def value(connection, sql, *arguments)
    connection.uncached { connection.select_value(statement("SELECT #{sql}", arguments)) }
  end

  def transaction(connection, &) = connection.transaction(&)

  # Not select_value(), which knows no type for an answer that is nothing.
  def guard(connection, *arguments)
    connection.execute(statement(IS_POSTGRES ? 'SELECT dlock_guard(?, ?, ?)' : 'CALL dlock.guard(?, ?, ?)', arguments))
  end

  def execute(connection, sql) = connection.execute(sql)

  # Also for the connection by whose rules sanitize_sql_array() quotes.
  def set(connection, sql) = [connection, ActiveRecord::Base.connection].each { |one| one.execute(sql) }

  def statement(sql, arguments) = ActiveRecord::Base.sanitize_sql_array([sql, *arguments])

  # What the driver said.
  def kind_of(error)
    cause = error.is_a?(ActiveRecord::ActiveRecordError) && error.cause
    return error.inspect unless cause

    case IS_POSTGRES ? cause.result&.error_field(PG::Result::PG_DIAG_SQLSTATE) : cause.error_number
    when '55L01', 1644 then 'lost'
    when '55P03', 3572 then 'blocked'
    when '22004', '22007', '22023', '55000', 1138, 1234, 1292, 3037 then 'misuse'
    when '40P01', 3058 then 'deadlock'
    when '57P01', 1927, 2006, 2013, 4031, nil then 'gone'
    else "#{error.inspect} #{cause.inspect}"
    end
  end

  def durations
    { 5.minutes => 300, 60.5.seconds => 60.5, (1.hour + 30.minutes) => 5400 }
  end

  def token(value) = value
  def yes = IS_POSTGRES ? true : 1
  def no = IS_POSTGRES ? false : 0
end

driver = Records.new
connection = driver_cases(driver)
ask = ->(sql, *arguments) { driver.value(connection, sql, *arguments) }

# lists
names = ['plain', 'a "quoted", {one} \\ Grün']
if IS_POSTGRES
  rows = ->(sql, *arguments) { connection.uncached { connection.select_values(driver.statement(sql, arguments)) } }
  tokens = rows.('SELECT unnest(dlock_acquire_all(ARRAY[?], ?, ?))', names, 'me', 30)
  claimed = rows.('SELECT name FROM dlock_acquire_any(ARRAY[?], ?, ?, ?)', %w[plain free], 'me', 30, 2)
  released = rows.('SELECT dlock_release_many(ARRAY[?], ?, ARRAY[?])', names, 'me', tokens)
  same(ask.('dlock_acquire_all(ARRAY[?], ?, ?)', ['array'], 'me', 30).class, String, 'an array of tokens arrives as text')
else
  json = ->(sql, *arguments) { JSON.parse(ask.("CONVERT(#{sql} USING utf8mb4)", *arguments)) }
  tokens = json.('dlock_acquire_all(?, ?, ?)', names.to_json, 'me', 30)
  claimed = json.('dlock_acquire_any(?, ?, ?, ?)', %w[plain free].to_json, 'me', 30, 2).map { |taken| taken['name'] }
  released = json.('dlock_release_many(?, ?, ?)', names.to_json, 'me', tokens.to_json)
end
same(tokens.map(&:class), [Integer, Integer], 'names go in, tokens come out')
same(claimed, ['free'], 'names that were free')
same(released, names, 'names and tokens go in')

# a deadlock is its own exception on PostgreSQL only
error = error_of { ask.('dlock_acquire_permit(?, ?, ?, ?, ?)', 'itself', 'me', 30, 1, 60) }
same(error.class, IS_POSTGRES ? ActiveRecord::Deadlocked : ActiveRecord::StatementInvalid, 'the exception of a deadlock')

# the query cache, which a Rails application has on while it answers a request
cached = lambda do |sql|
  connection.cache { Array.new(2) { connection.select_value(sql) } }
end
ask.('dlock_acquire(?, ?, ?)', 'cached', 'me', 30)
same(cached.("SELECT dlock_release('cached', 'me')"), [driver.yes, driver.yes], 'the query cache answers a repeated call, which the server is not asked')
ask.('dlock_acquire(?, ?, ?)', 'cached', 'me', 30)
answers = connection.cache { Array.new(2) { ask.('dlock_release(?, ?)', 'cached', 'me') } }
same(answers, [driver.yes, nil], 'in uncached it is asked')

# pools
pool = ActiveRecord::Base.connection_pool
pooled = ActiveRecord::Base.connection
driver.value(pooled, 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30)
pool.release_connection
same(ask.('dlock_owner(?)', 'pooled').to_s, 'me', 'a session lease does not end when the connection goes back to its pool')
same(ActiveRecord::Base.connection.equal?(pooled), true, 'whoever takes that has it')
pool.remove(pooled)
pooled.disconnect!
ok(ask.('dlock_acquire(?, ?, ?, ?)', 'pooled', 'other', 30, 60), 'remove and disconnect! end it')
pool.release_connection

# schema.rb, with a table of an application
def dump(connection)
  stream = StringIO.new
  ActiveRecord::SchemaDumper.dump(connection, stream)
  stream.string
end

def what_is_in(dump)
  dump.lines.grep(/^  (enable_extension|create_table)/).map { |line| line[/\w+ "\w+"/] }.sort
end

connection = ActiveRecord::Base.connection
connection.create_table(:jobs) { |table| table.string :name }
schema = dump(connection)
same(what_is_in(schema), ['create_table "jobs"', *('enable_extension "dlock"' if IS_POSTGRES), *('enable_extension "plpgsql"' if IS_POSTGRES)],
     'schema.rb has the extension, and nothing of what is in it')
connection.drop_table(:jobs)
ActiveRecord::Migration.suppress_messages { eval(schema) }
same(connection.table_exists?(:jobs), true, 'it can be loaded where dlock is installed')
same(driver.value(connection, 'dlock_is_free(?)', 'loaded'), driver.yes, 'which goes on')
if IS_POSTGRES
  connection.schema_search_path = 'public, dlock'
  same(what_is_in(dump(connection)).grep(/create_table/), ['create_table "jobs"'], 'the same with dlock in schema_search_path')
end
%w[jobs schema_migrations ar_internal_metadata].each { |table| connection.drop_table(table) }
done
