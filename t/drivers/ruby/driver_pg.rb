# pg.
# speaks: postgres
# needs: ruby ruby-pg

require_relative 'cases'
require 'pg'

# As the driver comes: all is text.
class Texts
  def connect
    PG.connect(host: HOST, port: PORT, dbname: DATABASE, user: USER)
  end

  def close(connection) = connection.close

  def value(connection, sql, *arguments)
    count = 0
    connection.exec_params("SELECT #{sql.gsub('?') { "$#{count += 1}" }}", arguments).getvalue(0, 0)
  end

  def transaction(connection, &) = connection.transaction(&)

  def guard(connection, *arguments)
    connection.exec_params('SELECT dlock_guard($1, $2, $3)', arguments)
  end

  def set(connection, sql) = connection.exec(sql)

  def kind_of(error)
    return error.inspect unless error.is_a?(PG::Error)

    case error.result&.error_field(PG::Result::PG_DIAG_SQLSTATE)
    when '55L01' then 'lost'
    when '55P03' then 'blocked'
    when '22004', '22007', '22023', '55000' then 'misuse'
    when '40P01' then 'deadlock'
    when '57P01', nil then 'gone'
    else error.inspect
    end
  end

  def durations = {}
  def token(value) = Integer(value)
  def yes = 't'
  def no = 'f'
end

# With the driver's types.
class Types < Texts
  def connect
    connection = super
    connection.type_map_for_queries = PG::BasicTypeMapForQueries.new(connection)
    connection.type_map_for_results = PG::BasicTypeMapForResults.new(connection)
    connection
  end

  def token(value) = value
  def yes = true
  def no = false
end

texts = Texts.new
connection = driver_cases(texts)

# what is text, is true
same(texts.value(connection, 'dlock_is_free(?)', 'itself') ? 'true' : 'false', 'true', 'what arrives for false is true for Ruby')

# lists, as text
array = PG::TextEncoder::Array.new
numbers = PG::TextDecoder::Array.new(elements_type: PG::TextDecoder::Integer.new)
names = ['plain', 'a "quoted", {one} \\']
tokens = numbers.decode(texts.value(connection, 'dlock_acquire_all(?, ?, ?)', array.encode(names), 'me', 30))
same(tokens.map(&:class), [Integer, Integer], 'a list goes in by PG::TextEncoder::Array, tokens come out')
rows = connection.exec_params('SELECT dlock_release_many($1, $2, $3)', [array.encode(names), 'me', array.encode(tokens)])
same(rows.column_values(0), names, 'names and tokens go in')
error = error_of { texts.value(connection, 'dlock_acquire_all(?, ?, ?)', names, 'me', 30) }
ok(error.is_a?(PG::InvalidTextRepresentation), 'an Array itself cannot be bound')

# a class of the driver's is one of several SQLSTATEs
error = error_of { texts.guard(connection, 'guarded', 'me', 1) }
same(error.class, PG::NoActiveSqlTransaction, 'a guard outside a transaction')
error = error_of { texts.transaction(connection) { texts.guard(connection, 'guarded', 'me', 1) } }
same(error.class, PG::ObjectNotInPrerequisiteState, 'lost, 55L01, has the class of 55000, misuse')

%w[me other].each { |owner| texts.value(connection, 'dlock_release_all(?)', owner) }
types = Types.new
connection = driver_cases(types)

# lists
tokens = types.value(connection, 'dlock_acquire_all(?, ?, ?)', names, 'me', 30)
same(tokens.map(&:class), [Integer, Integer], 'an Array of names goes in, one of tokens comes out')
rows = connection.exec_params('SELECT name, token FROM dlock_acquire_any($1, $2, $3, $4)', [%w[plain free], 'me', 30, 2])
same(rows.column_values(0), ['free'], 'rows: the names that were free')
rows = connection.exec_params('SELECT dlock_release_many($1, $2, $3)', [names, 'me', tokens])
same(rows.column_values(0), names, 'names and tokens go in')

# what a pool does with a connection
types.value(connection, 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30)
other = types.connect
same(types.value(other, 'dlock_is_free(?)', 'pooled'), false, 'a session lease')
connection.exec('DISCARD ALL')
same(types.value(other, 'dlock_is_free(?)', 'pooled'), true, 'DISCARD ALL ends it')
done
