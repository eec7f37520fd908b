module dlock

go 1.18
